package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), " "+dir+" ")
}

// Small disks of harnesses that are gone are taken away, and no others.
func TestOrphansAreUnmounted(t *testing.T) {
	if !CanMount() {
		const why = "no file system can be mounted here: that takes root"
		if os.Getenv("FENCEPOST_NEED_ALL") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	base := filepath.Join(t.TempDir(), fmt.Sprintf("fencepost-%d", os.Geteuid()))
	for _, test := range []struct {
		name, dir, lock string
		gone            bool
	}{
		{"in use", "pg-1/data/pg_wal", "held", false},
		{"WAL of one that is gone", "pg-2/data/pg_wal", "free", true},
		{"tablespace of one that is gone", "pg-3/data/pg_tblspc/16400", "free", true},
		{"of a home that is half removed", "pg-4/data/pg_wal", "", true},
		{"in another place", "pg-5/data/base", "free", false},
		{"in a home of nobody's", "other/data/pg_wal", "free", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(base, test.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.lock != "" {
				home, _, _ := strings.Cut(test.dir, "/")
				f, err := os.Create(filepath.Join(base, home, "lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if test.lock == "held" {
					if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := Mount(dir, 1<<20); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := Unmount(dir); err != nil {
					t.Error(err)
				}
			}()
			if err := unmountOrphans(); err != nil {
				t.Fatal(err)
			}
			if gone := !mounted(t, dir); gone != test.gone {
				t.Errorf("it is gone: %v", gone)
			}
		})
	}
}
