package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Meter is a set of totals of the server; what happens between two is their
// difference.
type Meter struct {
	CPU        time.Duration // of all the server's processes
	WAL        int64         // bytes, with full-page images; what is in them is told by Host.WAL, and so are commits
	Statements int64         // that clients have sent to the given database, nested ones not counted
}

// Read reads the totals, for the database of dsn. Its own few statements are
// left out where the server lets one.
func (h *Host) Read(ctx context.Context, database string) (m Meter, err error) {
	if m.CPU, err = h.CPU(); err != nil {
		return m, err
	}
	err = h.admin(ctx, func(c *pgx.Conn) error {
		// Both are up to date at once. What pg_stat_wal and pg_stat_database count
		// may lag behind by ten seconds.
		return c.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
			(SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
			 WHERE d.datname = $1 AND toplevel)`, database).Scan(&m.WAL, &m.Statements)
	})
	return m, err
}

// Calls counts the statements that clients have sent to the database and whose
// text is LIKE that.
func (h *Host) Calls(ctx context.Context, database, like string) (n int64, err error) {
	err = h.admin(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
			WHERE d.datname = $1 AND toplevel AND query LIKE $2`, database, like).Scan(&n)
	})
	return n, err
}

// Connections is how many clients are connected to the database.
func (h *Host) Connections(ctx context.Context, database string) (n int, err error) {
	err = h.admin(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", database).Scan(&n)
	})
	return n, err
}

// Sub is what happened between before and m.
func (m Meter) Sub(before Meter) Meter {
	return Meter{
		CPU: m.CPU - before.CPU, WAL: m.WAL - before.WAL, Statements: m.Statements - before.Statements,
	}
}

// CPU is the time that the server's processes have used, those that have ended
// included.
func (h *Host) CPU() (time.Duration, error) {
	main, err := processTimes(h.PID())
	if err != nil {
		return 0, err
	}
	total := main.own + main.children
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern lets only digits through
		t, err := processTimes(pid)
		if err == nil && t.parent == h.PID() { // others may have ended meanwhile
			total += t.own
		}
	}
	return total, nil
}

// ProcessCPU is the time that one process has used.
func ProcessCPU(pid int) (time.Duration, error) {
	t, err := processTimes(pid)
	return t.own, err
}

// ProcessRSS is how much memory of one process is resident, in bytes.
func ProcessRSS(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm of %d: %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

type times struct {
	parent        int
	own, children time.Duration
}

// tick is the unit of the times in /proc, a hundredth of a second on every
// Linux that Go runs on.
const tick = 10 * time.Millisecond

func processTimes(pid int) (t times, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return t, err
	}
	// After the name in parentheses, which may hold anything.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return t, fmt.Errorf("stat of %d: %q", pid, text)
	}
	numbers := make([]int64, 15)
	for i := 1; i < 15; i++ {
		if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return t, err
		}
	}
	t.parent = int(numbers[1])
	t.own = time.Duration(numbers[11]+numbers[12]) * tick
	t.children = time.Duration(numbers[13]+numbers[14]) * tick
	return t, nil
}
