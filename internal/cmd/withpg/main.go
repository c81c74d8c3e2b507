package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// The command may be told by the kernel when the thread that started it ends:
// it is started from the main thread, which lives as long as the process.
func init() { runtime.LockOSThread() }

func main() {
	majors, command, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		os.Exit(2)
	}
	// Caught from the start: no signal may end us before the server.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, caught...)
	os.Exit(run(majors, command, signals))
}

func parse(args []string) (majors []int, command []string, err error) {
	flags := flag.NewFlagSet("withpg", flag.ContinueOnError)
	list := flags.String("major", "", "major `versions`, separated by commas (default: the newest found)")
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	if flags.NArg() == 0 {
		return nil, nil, errors.New("usage: withpg [-major 15,18] -- command [argument …]")
	}
	if *list == "" {
		return []int{0}, flags.Args(), nil
	}
	for text := range strings.SplitSeq(*list, ",") {
		major, err := strconv.Atoi(text)
		if err != nil || major <= 0 {
			return nil, nil, fmt.Errorf("-major %s: %q is no version", *list, text)
		}
		majors = append(majors, major)
	}
	return majors, flags.Args(), nil
}

// run returns the exit code of the program.
func run(majors []int, command []string, signals <-chan os.Signal) int {
	first := 0
	for _, major := range majors {
		code, signaled := runOnce(major, command, signals)
		if len(majors) > 1 {
			fmt.Fprintf(os.Stderr, "withpg: PostgreSQL %d: exit code %d\n", major, code)
		}
		if first == 0 {
			first = code
		}
		if signaled {
			break
		}
	}
	return first
}

// runOnce runs the command with one server and tells whether a signal came.
func runOnce(major int, command []string, signals <-chan os.Signal) (code int, signaled bool) {
	if major == 0 && os.Getenv("DATABASE_URL") != "" {
		return runCommand(command, os.Environ(), signals)
	}
	s, err := startServer(major, signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		return 1, errors.Is(err, errSignal)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "withpg:", err)
			code = max(code, 1)
		}
	}()
	env := append(os.Environ(), "DATABASE_URL="+s.URL("postgres"), fmt.Sprintf("FENCEPOST_TEST_MAJOR=%d", s.Major()))
	return runCommand(command, env, signals)
}

var errSignal = errors.New("ended by a signal")

// startServer gives up when a signal comes.
func startServer(major int, signals <-chan os.Signal) (*pg.Server, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	started := make(chan error)
	var s *pg.Server
	go func() {
		var err error
		s, err = pg.Start(ctx, pg.Options{Major: major, Log: os.Stderr})
		started <- err
	}()
	select {
	case err := <-started:
		return s, err
	case sig := <-signals:
		cancel(fmt.Errorf("%w: %s", errSignal, sig))
	}
	if err := <-started; err != nil {
		return nil, err
	}
	return nil, errors.Join(errSignal, s.Stop())
}

// runCommand runs the command and passes signals on to it.
func runCommand(command, env []string, signals <-chan os.Signal) (code int, signaled bool) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		return 127, false
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state tells all
		close(ended)
	}()
	for {
		select {
		case sig := <-signals:
			signaled = true
			if !typed(sig) {
				_ = cmd.Process.Signal(sig) // it may have ended just now
			}
		case <-ended:
			code := cmd.ProcessState.ExitCode()
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			return code, signaled
		}
	}
}
