package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var diskFaults = []Fault{
	{
		Name: "disk-full-data", About: "the disk with an index of the jobs is full: whatever needs a new page there fails, and the server lives",
		Needs:  Needs{Mount: true},
		Length: 6 * time.Second, touches: schema | sessions, body: dataFull,
	},
	{
		Name: "disk-full-wal", About: "the disk with the WAL is full: the server crashes and cannot recover, until there is space and it is started again",
		Needs:  Needs{Mount: true},
		Length: 5 * time.Second, touches: servers, body: walFull,
	},
}

// undo is what has to be done in the end, last things first.
type undo []func() error

func (u *undo) later(do func() error) { *u = append(*u, do) }

func (u undo) do() error {
	var errs []error
	for _, do := range slices.Backward(u) {
		errs = append(errs, do())
	}
	return errors.Join(errs...)
}

// room is what the small disks have, beside what is on them already.
const room = 8 << 20

// dataFull makes an index of the jobs in a tablespace of its own, for which a
// small disk is mounted, and fills that. Every job that comes or changes needs
// an entry there, and soon a page. An index needs no lock that others would
// have to wait behind. The tablespace is in the data directory, so that a
// standby has one as well; the disk is the primary's.
func dataFull(ctx context.Context, a *act) error {
	return a.session(ctx, func(ctx, mend context.Context, conn *pgx.Conn) (err error) {
		var u undo
		defer func() { err = errors.Join(err, u.do()) }()
		run := func(sql string) error {
			if _, err := conn.Exec(mend, sql); err != nil {
				return &failed{sql, err}
			}
			return nil
		}

		if err := errors.Join(run("SET allow_in_place_tablespaces = on"), run("CREATE TABLESPACE torture LOCATION ''")); err != nil {
			return err
		}
		u.later(func() error { return run("DROP TABLESPACE torture") })
		var oid, size int64
		err = conn.QueryRow(mend, "SELECT oid::bigint, pg_table_size('fencepost.jobs') FROM pg_tablespace WHERE spcname = 'torture'").Scan(&oid, &size)
		if err != nil {
			return err
		}
		disk := filepath.Join(a.Data(), "pg_tblspc", strconv.FormatInt(oid, 10))
		inside, err := os.ReadDir(disk) // one directory, named after the server's version
		if err != nil || len(inside) != 1 {
			return fmt.Errorf("an unexpected tablespace: %v, %w", inside, err)
		}
		if err := stage.Mount(disk, 2*size+room); err != nil {
			return err
		}
		u.later(func() error { return stage.Unmount(disk) })
		u.later(func() error { return run("CHECKPOINT") }) // it removes and syncs files there
		if err := stage.Owned(filepath.Join(disk, inside[0].Name()), disk); err != nil {
			return err
		}

		u.later(func() error { return run("DROP TABLE IF EXISTS witness.torture") })
		u.later(func() error { return run("DROP INDEX CONCURRENTLY IF EXISTS fencepost.torture") })
		// First what changes most, so that what comes goes to the same full page.
		err = errors.Join(
			run("CREATE TABLE witness.torture (x text) TABLESPACE torture"),
			run("CREATE INDEX CONCURRENTLY torture ON fencepost.jobs (fence, id, status, kind, queue, run_at, lease_until, worker_id) TABLESPACE torture"))
		if err != nil {
			return err
		}
		u.later(func() error { return os.Remove(filepath.Join(disk, filler)) })
		if err := fill(disk); err != nil {
			return err
		}
		// Incompressible, so that it needs more than one page.
		_, err = conn.Exec(mend, "INSERT INTO witness.torture SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 20000)")
		if !isCode(err, "53100") { // disk_full
			return fmt.Errorf("the disk is not full: %v", err)
		}
		wait(ctx, a.length)
		return nil
	})
}

const filler = "filler"

// fill writes a file until the disk is full.
func fill(disk string) error {
	f, err := os.Create(filepath.Join(disk, filler))
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err = f.Write(block); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				break
			}
			err = nil
			block = block[:len(block)/2] // to the last byte
		}
	}
	return errors.Join(err, f.Close())
}

// walFull puts the WAL onto a small disk, for which the server is restarted,
// fills that, and lets the server use up the files that it has in reserve. It
// is dead then, and stays so until it is started again with space.
func walFull(ctx context.Context, a *act) (err error) {
	mend, cancel := mending(ctx)
	defer cancel()
	var u undo
	defer func() { err = errors.Join(err, u.do()) }()
	server, wal := a.Primary(), filepath.Join(a.Data(), "pg_wal")
	err = a.Bounce(mend, "fast", func() error {
		if err := stage.OntoSmallDisk(wal, 2*room); err != nil {
			return err
		}
		u.later(func() error { return a.Restart(mend) })
		u.later(func() error { return stage.OffSmallDisk(wal) })
		u.later(func() error { return os.RemoveAll(filepath.Join(wal, filler)) })
		u.later(func() error { return server.Shutdown("immediate") }) // if it is in one of its attempts to recover
		return nil
	})
	if err != nil {
		return err
	}
	if err := fill(wal); err != nil {
		return err
	}
	err = usedUp(mend, a)
	wait(ctx, a.length)
	return err
}

// usedUp makes the server go to the next file of the WAL until it has none any
// more, and dies.
func usedUp(ctx context.Context, a *act) error {
	conn, err := a.connect(ctx, "")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'torture', 'x'), pg_switch_wal()")
		switch {
		case err == nil:
		case ignoreLost(err) == nil || isCode(err, "53100"): // disk_full, in its last words
			return nil
		default:
			return err
		}
	}
	return errors.New("the disk with the WAL is not full")
}
