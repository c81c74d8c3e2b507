//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// programVariable makes the test binary withpg itself.
const programVariable = "WITHPG_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// withpg prepares a run, in a process group of its own, as a user has it who
// has set neither a server nor a version.
func withpg(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "DATABASE_URL=") && !strings.HasPrefix(v, "FENCEPOST_TEST_MAJOR=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, programVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// exitCode runs the command and returns its code and what it wrote.
func exitCode(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"--", "true"}, 0},
		{[]string{"--", "sh", "-c", "exit 42"}, 42},
		{[]string{"--", "sh", "-c", "kill -KILL $$"}, 128 + int(syscall.SIGKILL)},
		{[]string{"--", "/no/such/program"}, 127},
		{[]string{"-major", "13", "--", "true"}, 1},
		{[]string{"-major", "x", "--", "true"}, 2},
		{nil, 2},
	} {
		cmd := withpg(t, tt.args...)
		cmd.Env = append(cmd.Env, "DATABASE_URL=postgres://given") // saves the start of a server
		if code, out := exitCode(t, cmd); code != tt.code {
			t.Errorf("%q: exit code %d, want %d\n%s", tt.args, code, tt.code, out)
		}
	}
}

// With a server in DATABASE_URL already, that one is used.
func TestGivenServer(t *testing.T) {
	cmd := withpg(t, "--", "sh", "-c", "echo $DATABASE_URL")
	cmd.Env = append(cmd.Env, "DATABASE_URL=postgres://given")
	if code, out := exitCode(t, cmd); code != 0 || out != "postgres://given\n" {
		t.Errorf("exit code %d, output %q", code, out)
	}
}

// One server after the other; the first failure counts, and ends nothing.
func TestSeveralVersions(t *testing.T) {
	major := newestMajor(t)
	cmd := withpg(t, "-major", major+","+major, "--", "sh", "-c",
		`test -n "$DATABASE_URL" || exit 9; echo "version $FENCEPOST_TEST_MAJOR"; mkdir "$DIR/second" && exit 3; exit 4`)
	cmd.Env = append(cmd.Env, "DIR="+t.TempDir())
	code, out := exitCode(t, cmd)
	if code != 3 || strings.Count(out, "version "+major) != 2 {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
}

func newestMajor(t *testing.T) string {
	t.Helper()
	code, out := exitCode(t, withpg(t, "--", "sh", "-c", "echo major=$FENCEPOST_TEST_MAJOR"))
	_, major, ok := strings.Cut(strings.TrimSpace(out), "major=")
	if code != 0 || !ok {
		t.Fatalf("exit code %d, output:\n%s", code, out)
	}
	return major
}

// TERM and an INT that nobody typed reach the command, once, and the server
// lives until the command has ended.
func TestSignals(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			script := `
				caught() { echo caught; test -S "$socket" && echo served; exit 5; }
				trap caught ` + name + `
				echo "$DATABASE_URL"
				read socket
				echo ready
				read line`
			cmd := withpg(t, "--", "bash", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
			home, stdin, lines := startCommand(t, cmd)
			pid := serverPID(t, home)
			if _, err := io.WriteString(stdin, home+"/.s.PGSQL.5432\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := lines.ReadString('\n'); line != "ready\n" {
				t.Fatalf("read %q, %v", line, err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(lines)
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 5 {
				t.Errorf("exit code %d", code)
			}
			if string(rest) != "caught\nserved\n" {
				t.Errorf("the command said %q", rest)
			}
			waitGone(t, pid)
			if _, err := os.Stat(home); err == nil {
				t.Error("the server's directory is left")
			}
		})
	}
}

func TestKilled(t *testing.T) {
	cmd := withpg(t, "--", "bash", "-c", `echo "$DATABASE_URL"; echo $$; read line; read line`)
	home, _, lines := startCommand(t, cmd)
	server := serverPID(t, home)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	command, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, server)
	waitGone(t, command)
}

// startCommand starts withpg with a command that prints DATABASE_URL and then
// reads from a pipe that stays open until the end of the test.
func startCommand(t *testing.T, cmd *exec.Cmd) (home string, stdin io.Writer, lines *bufio.Reader) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines = bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host"), stdin, lines
}

func serverPID(t *testing.T, home string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// waitGone waits two seconds for the end of a process. A zombie has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}
