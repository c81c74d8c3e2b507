package migrations

import (
	"io/fs"
	"testing"
	"time"
)

// LockStatement takes the lock of the migrators of the schema $1.
const LockStatement = sqlLock

// Replace makes the given files the migrations of this program for the rest
// of the test, which must not be parallel: the list is one for all.
func Replace(t *testing.T, files fs.FS) {
	t.Helper()
	before, latest := all, Latest
	t.Cleanup(func() { all, Latest = before, latest })
	all = load(files)
	Latest = all[len(all)-1].Version
}

// Files are the real migrations.
func Files() fs.FS { return files }

// Attempts is how often DDL tries for a lock, for the rest of the test, which
// must not be parallel.
func Attempts(t *testing.T, n int) {
	before := ddlAttempts
	t.Cleanup(func() { ddlAttempts = before })
	ddlAttempts = n
}

// LockWait is how long a migrator waits for another, for the rest of the test,
// which must not be parallel.
func LockWait(t *testing.T, wait time.Duration) {
	before := lockWait
	t.Cleanup(func() { lockWait = before })
	lockWait = wait
}
