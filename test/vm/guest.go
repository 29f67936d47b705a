package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guest is a way to boot one of Debian's kernels.
type guest struct {
	name string
	// packageName asks apt which package has the kernel; image and modules are where it has them.
	packageName    func(context.Context) (string, error)
	image, modules string
	// command boots a kernel with an image. Its standard output is the guest's console.
	command func(ctx context.Context, k kernel, image string) *exec.Cmd
	// limit is how long the guest may live.
	limit time.Duration
}

// guests are those that this project knows. Neither uses KVM: where that is itself emulated, as on many build machines, a
// stock kernel hangs in it without a word.
var guests = []guest{
	{
		name:        "uml",
		packageName: func(context.Context) (string, error) { return "user-mode-linux", nil },
		image:       "usr/bin/linux.uml",
		modules:     "usr/lib/uml/modules",
		limit:       5 * time.Minute,
		command: func(ctx context.Context, k kernel, image string) *exec.Cmd {
			return exec.CommandContext(ctx, k.image, "mem=768M", "initrd="+image, "con=null", "con0=null,fd:1",
				"quiet", "loglevel=4", "panic=-1")
		},
	},
	{
		name:        "qemu",
		packageName: cloudKernel,
		image:       "boot/vmlinuz-*",
		modules:     "lib/modules",
		limit:       25 * time.Minute,
		command: func(ctx context.Context, k kernel, image string) *exec.Cmd {
			// A processor model without RDRAND would make the first random number wait a second.
			return exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi,tb-size=256",
				"-cpu", "max", "-m", "1024", "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none",
				"-monitor", "none", "-nic", "none", "-no-reboot", "-kernel", k.image, "-initrd", image,
				"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on",
				"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")
		},
	},
}

// unfit is what user-mode Linux 6.1 says before it gives up on a processor with more state than it has room for (AMX).
const unfit = "fp regs failed"

var errUnfit = errors.New("the kernel is not fit for this machine's processor")

// boot runs a guest to its end and returns how its tests fared. Whatever happens, no process of it is left.
func boot(ctx context.Context, g guest, k kernel, image, folder string) (report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.limit, fmt.Errorf("guest %s has reached its limit of %v", g.name, g.limit))
	defer cancel()
	cmd := g.command(ctx, k, image)
	// A group of its own: user-mode Linux is many processes, and Ctrl-C is for the launcher to hand on. It keeps the
	// guest's memory in a file, quicker in memory than on a disk.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "HOME="+folder, "TMPDIR=/dev/shm")
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stderr = os.Stderr
	console, err := cmd.StdoutPipe()
	if err != nil {
		return report{}, err
	}
	// Never written to: QEMU would close the guest's console at the end of its input.
	if _, err := cmd.StdinPipe(); err != nil {
		return report{}, err
	}
	if err := cmd.Start(); err != nil {
		return report{}, err
	}
	release, err := guard(cmd.Process.Pid, folder)
	if err != nil {
		return report{}, errors.Join(err, cmd.Cancel(), cmd.Wait())
	}
	defer release()
	r := listen(console, os.Stdout, g.name)
	err = cmd.Wait()
	if r.booted == 0 {
		said := strings.Join(r.prologue, "\n")
		if strings.Contains(said, unfit) {
			return r, errUnfit
		}
		fmt.Println(said)
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if !r.done {
		return r, fmt.Errorf("guest %s ended before its tests did (%v)", g.name, err)
	}
	return r, nil
}

// burial waits for the end of its input, then ends the process group $1 and removes the folder $2.
const burial = `cat >/dev/null; kill -s KILL -- "-$1"; rm -rf -- "$2"`

// guard sees to it that a guest does not outlive this program, even if that is killed: the system then closes the pipe
// on which a small shell waits. It returns how to do without, once the guest has ended.
func guard(group int, folder string) (release func(), err error) {
	cmd := exec.Command("sh", "-c", burial, "undertaker", strconv.Itoa(group), folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the undertaker: %w", err)
	}
	return func() {
		_ = cmd.Process.Kill() // before its pipe is closed: the number of the group may be another's by now
		_ = cmd.Wait()
	}, nil
}
