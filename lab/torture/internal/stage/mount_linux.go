package stage

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// CanMount says whether Mount works here: as root, in most places.
var CanMount = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "torture-mount-")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	return Mount(dir, 1<<20) == nil && Unmount(dir) == nil
})

// mountName is how our file systems are called among all that are mounted.
const mountName = "torture"

// Mount puts an empty file system of a size in bytes, which is in memory, over
// a directory. It belongs to the directory's owner.
func Mount(dir string, size int64) error {
	var was unix.Stat_t
	if err := unix.Stat(dir, &was); err != nil {
		return fmt.Errorf("mount over %s: %w", dir, err)
	}
	options := fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", size, was.Uid, was.Gid)
	if err := unix.Mount(mountName, dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount over %s: %w", dir, err)
	}
	return nil
}

// Unmount takes it away, even if somebody has files in it open.
func Unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) { // nothing is mounted there
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// Owned makes a directory of the owner of another one.
func Owned(dir, like string) error {
	var was unix.Stat_t
	if err := unix.Stat(like, &was); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, int(was.Uid), int(was.Gid))
}

// like gives a file the owner and the mode of another one.
func like(path, other string) error {
	var is unix.Stat_t
	if err := unix.Stat(other, &is); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, int(is.Uid), int(is.Gid)), os.Chmod(path, os.FileMode(is.Mode&0o777)))
}
