package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// home is the directory of one server: its data, its socket, its log. The
// lock on its file "lock" is held as long as this process lives, so whoever
// gets that lock knows that the server has lost its owner.
type home struct {
	path string
	lock *os.File
}

// newHome first removes what dead processes have left behind.
func newHome(ctx context.Context, own *owner) (*home, error) {
	base, err := baseDir(own)
	if err != nil {
		return nil, err
	}
	// Under this lock a home without a lock of its own cannot be one that
	// is just being made.
	unlock, err := lockFile(ctx, filepath.Join(base, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	sweep(base)

	path, err := os.MkdirTemp(base, "pg-")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		_, err = tryLock(f)
	}
	if err == nil {
		err = own.chown(path)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &home{path: path, lock: f}, nil
}

func (h *home) remove() error {
	err := os.RemoveAll(h.path)
	if cerr := h.lock.Close(); !errors.Is(cerr, fs.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	return err
}

// sweep ends the servers whose owner is dead, and removes their homes. What
// cannot be removed is left to the next sweep.
func sweep(base string) {
	homes, _ := filepath.Glob(filepath.Join(base, "pg-*"))
	for _, path := range homes {
		f, err := os.Open(filepath.Join(path, "lock"))
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(path)
			continue
		}
		if err != nil {
			continue
		}
		if free, err := tryLock(f); err == nil && free {
			stopOrphan(path)
			_ = os.RemoveAll(path)
		}
		_ = f.Close()
	}
}

// stopOrphan ends a server that nobody owns. Its process id may belong to
// another program by now, unless its socket still answers.
func stopOrphan(path string) {
	pidfile := filepath.Join(path, "data", "postmaster.pid")
	b, err := os.ReadFile(pidfile)
	lines := strings.Split(string(b), "\n")
	if err != nil || len(lines) < 4 {
		return
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil || pid <= 1 {
		return
	}
	conn, err := net.Dial("unix", filepath.Join(path, ".s.PGSQL."+lines[3]))
	if err != nil {
		return
	}
	_ = conn.Close()
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(syscall.SIGQUIT) != nil {
		return
	}
	// It removes the file as its last act.
	for patience := time.Now().Add(5 * time.Second); time.Now().Before(patience); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(pidfile); err != nil {
			return
		}
	}
}

// The name of a Unix socket has at most 103 bytes on macOS, 107 on Linux. Of
// those a home and the socket in it need up to this many.
const maxBase = 103 - len("/pg-4294967295/.s.PGSQL.65535")

// baseDir returns the directory that holds all homes of this user.
func baseDir(own *owner) (string, error) {
	name := fmt.Sprintf("fencepost-%d", os.Geteuid())
	for _, tmp := range []string{os.TempDir(), "/tmp"} {
		base := filepath.Join(tmp, name)
		if len(base) <= maxBase && own.canReach(tmp) {
			return base, ensureDir(base, own)
		}
	}
	return "", fmt.Errorf("%s is too long a name for a socket, or closed to the server's user", os.TempDir())
}

// cacheDir returns the directory for fetched packages and data templates: the
// user's cache, or else one among the temporary files. Root's home is closed
// to the server's user, so its cache is in /var/cache, and only if that fails
// are the programs copied at each start.
func cacheDir(own *owner) (string, error) {
	var candidates []string
	cache, err := os.UserCacheDir()
	if err == nil {
		err = os.MkdirAll(cache, 0o700)
	}
	if err == nil {
		candidates = append(candidates, filepath.Join(cache, "fencepost"))
	}
	if own != nil && !own.canReach(cache) {
		candidates = append([]string{"/var/cache/fencepost"}, candidates...)
	}
	candidates = append(candidates, filepath.Join(os.TempDir(), fmt.Sprintf("fencepost-cache-%d", os.Geteuid())))
	for _, dir := range candidates {
		derr := ensureDir(dir, own)
		if derr == nil {
			return dir, nil
		}
		err = errors.Join(err, derr)
	}
	return "", err
}

// ensureDir makes sure that dir exists and that no other user can write to
// it: its name is easily guessed, and we run what lies there. With an owner
// for the server, others may pass through it.
func ensureDir(dir string, own *owner) error {
	mode := fs.FileMode(0o700)
	if own != nil {
		mode = 0o711
	}
	err := os.Mkdir(dir, mode)
	if err == nil {
		err = os.Chmod(dir, mode) // whatever the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !isOurs(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a directory that only the user %d can write to: remove it", dir, os.Geteuid())
	}
	return nil
}

// lockFile waits for the exclusive lock on a file, which it makes if needed,
// and returns the func that gives it back.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		free, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if free {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx)), f.Close())
		}
	}
}
