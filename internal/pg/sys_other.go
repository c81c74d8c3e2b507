//go:build !unix

package pg

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// Here nothing but the error of serverOwner is ever reached.

type owner struct{}

func serverOwner() (*owner, error) {
	return nil, errors.New("not supported on " + runtime.GOOS + ": set DATABASE_URL to a server of your own")
}

func (*owner) chown(string) error { return nil }

func (*owner) canReach(string) bool { return true }

func isOurs(fs.FileInfo) bool { return true }

func attributes(*owner) *syscall.SysProcAttr { return nil }

func tryLock(*os.File) (bool, error) { return true, nil }
