//go:build unix

package pg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user as whom root starts the server. It is nil when this
// process does not run as root, and then its methods do nothing.
type owner struct{ uid, gid uint32 }

func serverOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uerr, gerr); err != nil {
			return nil, fmt.Errorf("look up user %s: %w", name, err)
		}
		return &owner{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: create one, or run as another user")
}

func (o *owner) chown(path string) error {
	if o == nil {
		return nil
	}
	return os.Lchown(path, int(o.uid), int(o.gid))
}

// canReach tells whether the owner may pass through path, a directory, and
// all above it.
func (o *owner) canReach(path string) bool {
	if o == nil {
		return true
	}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		pass := fs.FileMode(0o001)
		if st.Uid == o.uid {
			pass = 0o100
		} else if st.Gid == o.gid {
			pass = 0o010
		}
		if info.Mode().Perm()&pass == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}

func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// attributes returns what a child of ours is started with. It gets a process
// group of its own: Ctrl-C is for us, and we stop the server when the work on
// it has ended.
func attributes(o *owner) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if o != nil {
		attr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	dieWithParent(attr)
	return attr
}

// tryLock takes the exclusive lock on an open file, if it is free. It ends
// with the file, or with the process.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
