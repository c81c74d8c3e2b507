package pg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// initdbFlags need no locale to exist. The password is asked for on TCP only:
// every user of the machine can reach 127.0.0.1, the socket's directory only
// ours.
var initdbFlags = []string{
	"--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
	"--auth-local=trust", "--auth-host=scram-sha-256",
}

// createData makes home/data, a new data directory, and returns the password
// of its superuser. The first one for an installation is made by initdb, which
// takes a second or more, and a copy of it is kept for the following ones.
func createData(ctx context.Context, o Options, inst installation, own *owner, home string) (string, error) {
	data := filepath.Join(home, "data")
	cache, err := cacheDir(own)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Append(nil, inst.found, inst.version, initdbFlags))
	template := filepath.Join(cache, fmt.Sprintf("data-%d-%x", inst.major, key[:6]))
	unlock, err := lockFile(ctx, template+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	if password, err := os.ReadFile(filepath.Join(template, "password")); err == nil {
		return string(password), copyTree(filepath.Join(template, "data"), data, own)
	}
	o.logf("initialising PostgreSQL %d …", inst.major)
	password := rand.Text()
	if err := initdb(ctx, inst, own, home, password); err != nil {
		return "", err
	}

	wip := template + ".new"
	if err := os.RemoveAll(wip); err != nil {
		return "", err
	}
	if err := os.Mkdir(wip, 0o700); err != nil {
		return "", err
	}
	if err := copyTree(data, filepath.Join(wip, "data"), nil); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(wip, "password"), []byte(password), 0o600); err != nil {
		return "", err
	}
	return password, os.Rename(wip, template)
}

func initdb(ctx context.Context, inst installation, own *owner, home, password string) error {
	pwfile := filepath.Join(home, "password")
	if err := os.WriteFile(pwfile, []byte(password), 0o600); err != nil {
		return err
	}
	if err := own.chown(pwfile); err != nil {
		return err
	}
	data := filepath.Join(home, "data")
	args := append([]string{"-D", data, "--pwfile=" + pwfile}, initdbFlags...)
	cmd := exec.CommandContext(ctx, filepath.Join(inst.bin, "initdb"), args...)
	cmd.Dir = home
	cmd.Env = environment()
	cmd.SysProcAttr = attributes(own)
	runtime.LockOSThread() // see launch
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return os.Remove(pwfile)
}

// copyTree copies a directory of files, directories and symbolic links, and
// gives the copies to own.
func copyTree(from, to string, own *owner) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			err = os.Mkdir(target, info.Mode().Perm())
		case d.Type()&fs.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		default:
			err = copyFile(path, target, info.Mode().Perm())
		}
		if err != nil {
			return err
		}
		return own.chown(target)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

func randomUint32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint32(b[:])
}
