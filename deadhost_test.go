package fencepost_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// behindASilentHost is the DSN with a host before it that takes connections
// and says nothing, like one that vanished in a failover.
func behindASilentHost(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	return fmt.Sprintf("host=127.0.0.1,%s port=%d,%d user=%s password='%s' dbname=%s sslmode=disable connect_timeout=3",
		config.Host, silent.Addr().(*net.TCPAddr).Port, config.Port, config.User, config.Password, config.Database)
}

// The first of the servers that the connection string names has vanished: a
// worker whose connection with the lock is ended comes back by the second one
// before it is taken for dead.
func TestAVanishedServerInTheStringDelaysNobody(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	through := behindASilentHost(t, dsn)
	c := startCrew(t, through, pool)
	super := admin(t, pool)
	var victim string
	if err := pool.QueryRow(t.Context(), "SELECT worker_id FROM fencepost.workers ORDER BY started_at LIMIT 1").Scan(&victim); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		eventually(t, "both workers have a lock", func() bool { return live(t, pool) == 2 })
		n := count(t, super, `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN fencepost.workers AS w
			ON l.locktype = 'advisory' AND l.classid = w.tableoid AND l.objid = w.lock_key::oid AND l.granted
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			WHERE w.worker_id = $1) AS x`, victim)
		if n != 1 {
			t.Fatal(n)
		}
		time.Sleep(5300 * time.Millisecond) // the pace of the test: two looks and more
		c.unharmed(fmt.Sprint("round ", round))
		if t.Failed() {
			break
		}
	}
}
