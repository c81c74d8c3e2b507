package fencepost_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// noticed is how soon the jobs of a process that was killed run again
// elsewhere, with default settings: at most 2 s to a look, 2 s of grace, 0.1 s
// of pause, and the rest for a busy machine.
const noticed = 5 * time.Second

func hundred() []fencepost.NewJob {
	jobs := make([]fencepost.NewJob, 100)
	for i := range jobs {
		jobs[i] = fencepost.NewJob{Kind: "hold"}
	}
	return jobs
}

// runsAgain kills the one process and waits until its hundred jobs run in the
// other.
func runsAgain(t *testing.T, pool *pgxpool.Pool, killed, idle *holder) {
	t.Helper()
	if n := len(idle.told("began")); n > 0 {
		t.Fatalf("%d jobs run in the other process", n)
	}
	var worker string
	if err := pool.QueryRow(t.Context(), "SELECT DISTINCT worker_id FROM fencepost.jobs").Scan(&worker); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	killed.kill()
	died := 0
	for began := 0; began < 100; {
		line := receive(t, idle.lines, fmt.Sprintf("jobs in the other process; %d run", began))
		switch {
		case strings.HasPrefix(line, "began"):
			began++
		case line == "died "+worker+" 100":
			died++
		case strings.HasPrefix(line, "died"):
			t.Errorf("the other process says: %s", line)
		}
	}
	took := time.Since(at)
	t.Logf("100 jobs of a killed process run again after %v", took)
	if took > noticed {
		t.Errorf("100 jobs of a killed process run again after %v, want at most %v", took, noticed)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE status = 'running' AND attempts = 2 AND last_error LIKE 'worker % died in attempt 1 of 20'"); n != 100 {
		t.Errorf("%d jobs run for the second time because their worker died, want 100", n)
	}
	if died != 1 {
		t.Errorf("the observer was told %d times, want once", died)
	}
	eventually(t, "the dead worker's row is swept", func() bool {
		// Not before it is a minute old.
		if _, err := pool.Exec(t.Context(), "UPDATE fencepost.workers SET written_at = clock_timestamp() - interval '61 seconds' WHERE worker_id = $1", worker); err != nil {
			t.Fatal(err)
		}
		return count(t, pool, "SELECT count(*) FROM fencepost.workers") == 1
	})
}

// A process is killed with a hundred jobs in hand; another one, idle and just
// started, has all of them running again within 5 s, with default settings.
func TestJobsOfAKilledProcessRunAgainInSeconds(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	enqueue(t, newClient(t, pool, fencepost.Config{}), hundred()...)
	busy := startHolder(t, dsn)
	busy.tells(100, "began")
	idle := startHolder(t, dsn)
	eventually(t, "the other process is there", func() bool { return count(t, pool, "SELECT count(*) FROM fencepost.workers") == 2 })
	runsAgain(t, pool, busy, idle)
}

// The same when the other process has looked just before the jobs were
// claimed, and would not look again for half a minute: it heard the bell, so
// it looks again after 2 s. And it goes on looking while the jobs run.
func TestJobsThatWereClaimedAfterTheLastLookRunAgainInSeconds(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"killed at once": 0, "killed later": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := database(t)
			busy, idle := startHolder(t, dsn), startHolder(t, dsn)
			busy.tells(1, "hearing true")
			idle.tells(1, "hearing true")
			idle.signal(sigStop) // the other one is to have all jobs
			enqueue(t, newClient(t, pool, fencepost.Config{}), hundred()...)
			busy.tells(100, "began")
			idle.signal(sigCont)
			time.Sleep(wait) // until nothing but the jobs themselves makes it look
			runsAgain(t, pool, busy, idle)
		})
	}
}

// Many processes die together, as on one host, and all of them would have
// looked before the one that is left: it looks the more rarely the more are
// before it, but not so rarely that only leases tell.
func TestJobsOfManyKilledProcessesRunAgainInSeconds(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	const many = 5
	var killed []*holder
	for range many {
		h := startHolderFor(t, dsn, 5*time.Minute)
		h.tells(1, "hearing true")
		killed = append(killed, h)
		enqueue(t, newClient(t, pool, fencepost.Config{}), hundred()...)
	}
	for _, h := range killed {
		h.tells(100, "began")
	}
	left := startHolderFor(t, dsn, 5*time.Minute)
	left.tells(1, "hearing true")
	at := time.Now()
	for _, h := range killed {
		h.signal(syscall.SIGKILL)
	}
	left.tells(100, "began")
	took := time.Since(at)
	t.Logf("jobs of %d killed processes run again after %v", many, took)
	if want := noticed + 2*time.Second*many; took > want {
		t.Errorf("jobs of %d killed processes run again after %v, want at most %v", many, took, want)
	}
}
