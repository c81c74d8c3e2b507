package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// occupy makes the folder, if need be, and keeps all other runs out of it until
// this process ends. Only then it is emptied, if that is wanted.
func occupy(dir string, empty bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// No os.File: that would be closed once nobody looks at it any more.
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errors.Join(fmt.Errorf("another run is using %s: give this one a folder of its own with --out", dir), unix.Close(fd))
	} else if err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", dir, err), unix.Close(fd))
	}
	if !empty {
		return nil
	}
	// What is in it, and not the folder itself, with which the lock would go.
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
