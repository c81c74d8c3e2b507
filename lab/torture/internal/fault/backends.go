package fault

import (
	"context"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

var backendFaults = []Fault{
	// A listener has a while to hear nothing in, or it would look all the time.
	terminate("listener", 4*time.Second, 14*time.Second),
	terminate("exchange", 400*time.Millisecond, 8*time.Second),
	terminate("keeper", 400*time.Millisecond, 8*time.Second),
	{
		Name: "kill-backend", About: "a backend of the server is killed (SIGKILL): all sessions end, and the server recovers as from a crash",
		Length: 3 * time.Second, touches: servers, body: killBackend,
	},
}

// terminate ends one kind of the workers' own connections, of a random worker
// or of all at once, again and again. The exchange has two.
func terminate(role string, every, length time.Duration) Fault {
	return Fault{
		Name: "terminate-" + role, About: "the connections named 'fencepost " + role + "' are ended (pg_terminate_backend), again and again",
		Length: length, touches: sessions,
		body: func(ctx context.Context, a *act) error {
			return a.repeat(ctx, every, func() error {
				whose := "%"
				if p := a.victim(); p != nil && a.r.IntN(3) > 0 {
					whose = p.Base()
				}
				_, err := a.Admin().Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1 AND usename LIKE $2", "fencepost "+role+"%", whose)
				return ignoreLost(err)
			})
		},
	}
}

// killBackend kills a worker's backend, if there is one, or else one of its
// own.
func killBackend(ctx context.Context, a *act) error {
	ctx, cancel := mending(ctx)
	defer cancel()
	watch, err := a.connect(ctx, "")
	if err != nil {
		return err
	}
	defer watch.Close(ctx)
	pids, err := backends(ctx, watch)
	if err != nil {
		return err
	}
	pid := int(watch.PgConn().PID())
	if len(pids) > 0 {
		pid = pids[rand.N(len(pids))] // not a.r: how many there are is not for the seed to say
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	_, _ = watch.Exec(ctx, "SELECT pg_sleep(60)") // it ends with all sessions
	return a.AwaitReady(ctx)
}

func backends(ctx context.Context, conn *pgx.Conn) ([]int, error) {
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'fencepost %' AND backend_type = 'client backend'")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}
