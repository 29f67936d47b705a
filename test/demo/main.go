// Command demo shows the defect that routefence is for, and its cure, with a real OpenVPN between a control plane pod and
// a shoot node, all in network namespaces. It ends with exit code 0 only if everything it claims was so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// timeLimit bounds the whole demo; it takes a quarter of that.
const timeLimit = 90 * time.Second

func main() {
	binary := flag.String("routefence", "bin/routefence", "the binary to show")
	shoot := flag.String("shoot", "test/demo/testdata/shoot.yaml", "the Shoot manifest it reads")
	agentLog := flag.String("agent-log", "bin/demo-agent.log", "where the agent's log stays")
	flag.Parse()
	os.Exit(play(*binary, *shoot, *agentLog))
}

// play carries the story out and returns the exit code.
func play(binary, shoot, agentLog string) int {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(interrupted, stop) // the second Ctrl-C is not caught; the lab's undertaker cleans up behind it
	ctx, cancel := context.WithTimeout(interrupted, timeLimit)
	defer cancel()

	_ = os.Remove(agentLog) // that of an earlier run would pass for this one's

	s := &stage{ctx: ctx, begin: time.Now()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.clean()
		tell(s, binary, shoot, agentLog)
	}()
	<-done
	switch {
	case interrupted.Err() != nil:
		fmt.Println("\nInterrupted; everything the demo made is removed.")
		return 130
	case s.failed > 0:
		fmt.Printf("\nDEMO FAILED: %d expectation(s) did not hold, see FAILED above.\n", s.failed)
		s.showLog(agentLog)
		return 1
	}
	fmt.Printf("\nAll of this was so. %.0f seconds; everything the demo made is removed.\n", time.Since(s.begin).Seconds())
	return 0
}

// stage is the demo's side of rig.T: it prints, counts what failed and cleans up.
type stage struct {
	ctx      context.Context
	begin    time.Time
	failed   int
	cleanups []func()
}

// Helper has no meaning here.
func (s *stage) Helper() {}

// Cleanup has f called when the story ends, last one first.
func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Logf prints a line of progress.
func (s *stage) Logf(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// Errorf prints what failed. The story goes on: the rest is still worth seeing.
func (s *stage) Errorf(format string, args ...any) {
	s.failed++
	s.Logf("FAILED: "+format, args...)
}

// Fatalf prints what failed and ends the story.
func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

// expect fails with what was expected and what was found, unless ok.
func expect[V comparable](s *stage, what string, got, want V) {
	if got != want {
		s.Errorf("%s: got %v, expected %v", what, got, want)
	}
}

func (s *stage) clean() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// wait asks again and again until the answer is yes. It ends the story if that takes too long or somebody interrupts.
func (s *stage) wait(what string, patience time.Duration, yes func() bool) {
	deadline := time.Now().Add(patience)
	for !yes() {
		switch {
		case s.ctx.Err() != nil:
			s.Fatalf("gave up waiting until %s: %v", what, context.Cause(s.ctx))
		case time.Now().After(deadline):
			s.Fatalf("waited %v in vain until %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// logTail is how much of a log is shown after a failure.
const logTail = 4000

func (s *stage) showLog(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Printf("There is no log of the agent: %v\n", err)
		return
	}
	fmt.Printf("The agent's log, %s, ends with:\n%s", path, text[max(0, len(text)-logTail):])
}
