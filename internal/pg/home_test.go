//go:build unix

package pg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func homesIn(t *testing.T, base string) []string {
	t.Helper()
	homes, err := filepath.Glob(filepath.Join(base, "pg-*"))
	if err != nil {
		t.Fatal(err)
	}
	return homes
}

// However the owner of a server ends, the server ends within two seconds, and
// its directory is gone after the next start.
func TestOwnerDies(t *testing.T) {
	for name, kill := range map[string]func(pid int) error{
		"kill -9": func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"Ctrl-C":  func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd, pid, home := startOwner(t, os.Args[0], &syscall.SysProcAttr{Setpgid: true})
			checkOwnerDies(t, func() error { return kill(cmd.Process.Pid) }, pid)
			startTest(t, Options{})
			if exists(home) {
				t.Errorf("%s was not removed", home)
			}
		})
	}
}

func checkOwnerDies(t *testing.T, kill func() error, pid int) {
	t.Helper()
	if !running(pid) {
		t.Fatal("there is no server")
	}
	if err := kill(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		waitGone(t, pid, 2*time.Second)
	}
}

// The same for a normal user, without a home and thus with a cache among the
// temporary files.
func TestNormalUser(t *testing.T) {
	dir := openDir(t)
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	binary := os.Args[0]
	if own, err := serverOwner(); err != nil {
		t.Fatal(err)
	} else if own != nil {
		// Others cannot reach the directory in which go test has built us.
		binary = filepath.Join(dir, "test")
		if err := copyFile(os.Args[0], binary, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := own.chown(tmp); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: own.uid, Gid: own.gid}
	}
	env := []string{"TMPDIR=" + tmp, "HOME=/nonexistent", "XDG_CACHE_HOME="}
	cmd, pid, home := startOwner(t, binary, attr, env...)
	checkOwnerDies(t, cmd.Process.Kill, pid)
	_, _, next := startOwner(t, binary, attr, env...)
	if exists(home) || !exists(next) {
		t.Errorf("%s is there: %v; %s is there: %v", home, exists(home), next, exists(next))
	}
}

// Where the kernel does not end a server with its owner, the next start does.
func TestSweepStopsOrphans(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	orphan := startTest(t, Options{})
	if err := orphan.home.lock.Close(); err != nil { // as the owner's death does
		t.Fatal(err)
	}
	owned := startTest(t, Options{})
	select {
	case <-orphan.proc.done:
	case <-time.After(10 * time.Second):
		t.Error("the orphan still runs")
	}
	if exists(orphan.home.path) {
		t.Error("the orphan's directory is still there")
	}

	startTest(t, Options{})
	mustAsk(t, owned.URL("postgres"), "SELECT current_user")
}

// A process may die between the making of a home and of its lock.
func TestSweepRemovesUnfinishedHomes(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	own, err := serverOwner()
	if err != nil {
		t.Fatal(err)
	}
	base, err := baseDir(own)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(base, "pg-123", "data", "file"), "", 0o600)
	h, err := newHome(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	if homes := homesIn(t, base); len(homes) != 1 || homes[0] != h.path {
		t.Errorf("homes: %v", homes)
	}
	if err := h.remove(); err != nil {
		t.Error(err)
	}
}

func TestBaseDirIsShort(t *testing.T) {
	long := filepath.Join(openDir(t), "a-directory-with-a-long-name", "a-directory-with-a-long-name", "a-directory-with-a-long-name")
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	base, err := baseDir(nil)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(base) != "/tmp" {
		t.Errorf("base: %s", base)
	}
}

func TestEnsureDirRefuses(t *testing.T) {
	dir := openDir(t)
	writable := filepath.Join(dir, "writable")
	if err := os.Mkdir(writable, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(writable, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "", 0o600)
	for _, name := range []string{"writable", "link", "file"} {
		if ensureDir(filepath.Join(dir, name), nil) == nil {
			t.Errorf("%s was taken", name)
		}
	}
	foreign := filepath.Join(dir, "foreign")
	if os.Geteuid() != 0 {
		foreign = "/usr"
	} else if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	} else if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if ensureDir(foreign, nil) == nil {
		t.Error("another user's directory was taken")
	}
	for range 2 {
		if err := ensureDir(filepath.Join(dir, "new"), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second lock: %v", err)
	}
	unlock()
	unlock, err = lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestCanReach(t *testing.T) {
	dir := openDir(t)
	closed := filepath.Join(dir, "closed")
	inside := filepath.Join(closed, "inside")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	stranger := &owner{uid: 12345, gid: 12345}
	self := &owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if !stranger.canReach(inside) {
		t.Error("a stranger cannot reach an open directory")
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if stranger.canReach(inside) {
		t.Error("a stranger can reach a directory inside a closed one")
	}
	if !self.canReach(inside) {
		t.Error("we cannot reach our own directory")
	}
	if stranger.canReach(filepath.Join(dir, "missing")) {
		t.Error("a stranger can reach what is not there")
	}
}
