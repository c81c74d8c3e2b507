package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// diskPlace is where a small disk may be: in the home of a server of this user, over
// its WAL or a tablespace. The home is the first part.
var diskPlace = regexp.MustCompile(fmt.Sprintf(`^(/.*/fencepost-%d/pg-[0-9]+)/data/(pg_wal|pg_tblspc/[0-9]+)$`, os.Geteuid()))

// unmountOrphans takes away the small disks of harnesses that were killed while
// they had one: as long as it is there, the home of its server cannot be
// removed.
func unmountOrphans() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil // then nobody can have mounted anything here
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line) // what is mounted, where, of which type
		if len(fields) < 3 || fields[0] != mountName || fields[2] != "tmpfs" {
			continue
		}
		if at := diskPlace.FindStringSubmatch(fields[1]); at != nil {
			errs = append(errs, unmountOrphan(at[1], at[0]))
		}
	}
	return errors.Join(errs...)
}

// unmountOrphan takes one away if nobody has the lock of the home any more. A
// home without a lock is one that could only be removed in part.
func unmountOrphan(home, dir string) error {
	lock, err := os.Open(filepath.Join(home, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return Unmount(dir)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // it is in use
	}
	if err != nil {
		return err
	}
	return Unmount(dir)
}
