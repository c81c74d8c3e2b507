//go:build unix

package pg

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// roleVariable makes the test binary another program: the owner of a server.
const roleVariable = "FENCEPOST_PG_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "owner" {
		own()
	}
	goleak.VerifyTestMain(m)
}

// testMajor is the version that the whole suite runs on, or 0.
func testMajor() int {
	major, _ := strconv.Atoi(os.Getenv("FENCEPOST_TEST_MAJOR"))
	return major
}

// own starts a server, prints its process id and its directory, and waits to
// be killed.
func own() {
	s, err := Start(context.Background(), Options{Major: testMajor()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.PID(), s.home.path)
	for {
		time.Sleep(time.Hour)
	}
}

// startOwner runs own in a process group of its own.
func startOwner(t *testing.T, binary string, attr *syscall.SysProcAttr, env ...string) (cmd *exec.Cmd, pid int, home string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, binary)
	cmd.Env = append(os.Environ(), append(env, roleVariable+"=owner")...)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner did not start a server: %v", err)
	}
	if _, err := fmt.Sscan(line, &pid, &home); err != nil {
		t.Fatal(err)
	}
	return cmd, pid, home
}

func startTest(t *testing.T, o Options) *Server {
	t.Helper()
	o.Major, o.Log = testMajor(), os.Stderr
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask runs a statement on a connection of its own and returns its one value.
func ask(ctx context.Context, dsn, sql string) (string, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var text string
	err = conn.QueryRow(ctx, sql).Scan(&text)
	return text, err
}

func mustAsk(t *testing.T, dsn, sql string) string {
	t.Helper()
	text, err := ask(t.Context(), dsn, sql)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustExec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// running tells whether a process exists and is no mere zombie, which some
// containers never clear away.
func running(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func waitGone(t *testing.T, pid int, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); running(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there after %s", pid, patience)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// openDir makes a directory with a short name that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
