// Package command is what both programs have in common: exit codes, mistakes of their users, logs.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The exit codes of the contract: as asked, not so, a mistake in what was given.
const (
	OK      = 0
	Failed  = 1
	Mistake = 2
)

// Exit is an error that ends the program with a code. A nil Err prints nothing more.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Fail ends the program with code 1; nil says that everything has been said.
func Fail(err error) error { return &Exit{Failed, err} }

// Usage is a mistake in flags, arguments or environment.
func Usage(format string, args ...any) error { return &Exit{Mistake, fmt.Errorf(format, args...)} }

// Main runs a program until it ends or is asked to.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	root.SetArgs(os.Args[1:])
	code := Run(ctx, root)
	stop()
	os.Exit(code)
}

// Run carries out a command and returns the exit code, after a line about what went wrong.
func Run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	var exit *Exit
	if !errors.As(err, &exit) {
		// What cobra itself finds wrong is a mistake on the command line.
		exit = &Exit{Mistake, err}
	}
	if exit.Err != nil {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), OneLine(exit.Err))
	}
	return exit.Code
}

// OneLine keeps an error on the single line that exit code 2 promises.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Root completes the command that the others hang on.
func Root(root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	root.SilenceUsage, root.SilenceErrors, root.Args = true, true, cobra.NoArgs
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		_ = cmd.Help()
		return &Exit{Code: Mistake}
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(commands...)
	return root
}

// OneOf returns a mistake if a flag's value is none of its choices.
func OneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return Usage("--%s=%s: want one of %s", flag, value, strings.Join(choices, ", "))
}

// Logger returns the log that two flags ask for, whose names begin with a prefix: PREFIXlog-level and PREFIXlog-format.
func Logger(prefix, level, format string) (*zap.Logger, error) {
	if err := OneOf(prefix+"log-level", level, "debug", "info", "warn", "error"); err != nil {
		return nil, err
	}
	if err := OneOf(prefix+"log-format", format, "json", "console"); err != nil {
		return nil, err
	}
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, Usage("--%slog-level=%s: %v", prefix, level, err)
	}
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(l)
	c.Encoding = format
	c.Sampling = nil // one line per change is few, and none may be lost
	c.DisableStacktrace, c.DisableCaller = true, true
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	log, err := c.Build()
	if err == nil {
		zap.RedirectStdLog(log) // by which libraries tell of what they do not expect
	}
	return log, err
}
