package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fencepost-go/fencepost"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks, a second one ends the process, unless the command
	// that runs has its own use for it.
	context.AfterFunc(ctx, stop)
	// Caught, so that writing to a closed pipe is an error like any other and
	// not a silent death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(Run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes. They are part of the command's stable face; the help of the root
// command lists them.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitConnect = 3
	exitSchema  = 4
	exitMissing = 5
)

var (
	errUsage   = errors.New("wrong usage")
	errConnect = errors.New("no connection")
	errNoQueue = errors.New("no such queue")
)

// Run runs the command that args describe, without the program's name, and
// returns its exit code. Everything it takes from the process is an argument,
// except that pgx reads the PG… variables itself. The writers must be safe for
// concurrent use, as files are.
func Run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{env: env, stdin: stdin, stdout: stdout, stderr: stderr, out: bufio.NewWriter(stdout)}
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.began {
		err = usage("%w", err) // refused by cobra
	}
	if flushed := a.out.Flush(); flushed != nil && !errors.Is(err, flushed) {
		err = errors.Join(err, fmt.Errorf("write the output: %w", flushed))
	}
	code := exitCode(err)
	if code != exitOK {
		for line := range strings.Lines(redact(err.Error())) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintln(stderr, "fencepost:", printable(line))
			}
		}
	}
	return code
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage), errors.Is(err, fencepost.ErrInvalid):
		return exitUsage
	case errors.Is(err, errConnect):
		return exitConnect
	case errors.Is(err, fencepost.ErrSchema):
		return exitSchema
	case errors.Is(err, fencepost.ErrNotFound), errors.Is(err, errNoQueue):
		return exitMissing
	default:
		return exitFailed
	}
}

// usageError is what the caller has to write differently. Its text is that of
// the error alone.
type usageError struct{ error }

func (e usageError) Is(target error) bool { return target == errUsage }
func (e usageError) Unwrap() error        { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
