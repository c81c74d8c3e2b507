package rival

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// scenario is what is done to a crew at work. It leaves its faults in the
// trial.
type scenario struct {
	name string
	do   func(context.Context, *trial) error
}

var scenarios = []scenario{
	{"SIGKILL of a worker", killWorkers},
	{"SIGKILL of the leader", killLeader},
	{"SIGSTOP past the rescue", freeze},
	{"backends terminated", terminate},
	{"crash restart", crash},
}

// fewScenarios are for a test.
var fewScenarios = []scenario{{"SIGKILL of a worker", killWorkers}, {"crash restart", crash}}

// killWorkers kills workers that do not lead, one after the other; another takes
// the place of each at once.
func killWorkers(ctx context.Context, t *trial) error {
	for _, after := range t.timing.Kills {
		if err := t.until(ctx, after); err != nil {
			return err
		}
		m, err := t.follower(ctx, "SIGKILL of")
		if err != nil {
			return err
		}
		if err := t.kill(m); err != nil {
			return err
		}
	}
	return nil
}

// killLeader kills the one worker that leads, or any if there is no such.
func killLeader(ctx context.Context, t *trial) error {
	if err := t.until(ctx, t.timing.Once); err != nil {
		return err
	}
	l, err := t.queue.leader(ctx, t.pool)
	if err != nil {
		return err
	}
	for _, m := range t.crew.members {
		if m.name == l.name {
			t.notef("SIGKILL of %s, %.1f s after its election", m.name, time.Since(l.since).Seconds())
			return t.kill(m)
		}
	}
	t.notef("there is no leader")
	m, err := t.follower(ctx, "SIGKILL of")
	if err != nil {
		return err
	}
	return t.kill(m)
}

func (t *trial) kill(m *member) error {
	t.faults = append(t.faults, killed(m.name, history.Now()))
	if err := m.kill(); err != nil {
		return err
	}
	t.crew.dismiss(m)
	return t.crew.hire()
}

// follower chooses, of the workers that do not lead, the one that holds most
// jobs, and notes what is done to it.
func (t *trial) follower(ctx context.Context, what string) (*member, error) {
	l, err := t.queue.leader(ctx, t.pool)
	if err != nil {
		return nil, err
	}
	r, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	holds := map[string]int{}
	for _, c := range claims(r.Changes) {
		if c.Left == 0 {
			holds[c.Holder]++
		}
	}
	followers := slices.DeleteFunc(slices.Clone(t.crew.members), func(m *member) bool { return m.name == l.name })
	m := slices.MaxFunc(followers, func(a, b *member) int { return cmp.Compare(holds[a.name], holds[b.name]) })
	if l.name == "" {
		t.notef("%s %s", what, m.name)
	} else {
		t.notef("%s %s, %.1f s after the election of the leader, %s", what, m.name, time.Since(l.since).Seconds(), l.name)
	}
	return m, nil
}

// freeze stops a worker that does not lead until others have started its jobs,
// and a moment longer, so that its late outcomes meet running attempts: no long
// job is through in less than longest/2.
func freeze(ctx context.Context, t *trial) error {
	if err := t.until(ctx, t.timing.Once); err != nil {
		return err
	}
	m, err := t.follower(ctx, "SIGSTOP of")
	if err != nil {
		return err
	}
	t.faults = append(t.faults, frozen(m.name, history.Now()))
	f := &t.faults[0]
	if err := m.pause(); err != nil {
		return err
	}
	begun, err := t.await(ctx, t.timing.Limit, func(r record) bool {
		started, _ := r.elsewhere(*f)
		return started > 0
	})
	if err != nil {
		return err
	}
	if _, err := t.await(ctx, longest/4, func(r record) bool {
		started, held := r.elsewhere(*f)
		return started == held
	}); err != nil {
		return err
	}
	f.Until = history.Now()
	if err := m.resume(); err != nil {
		return err
	}
	t.notef("SIGCONT after %.1f s", time.Duration(f.Until-f.At).Seconds())
	if !begun {
		t.notef("none of its jobs had been started elsewhere by then")
	}
	return sleep(ctx, time.Second) // for what it has to say
}

// terminate ends all connections of a worker that does not lead, twice a second
// for a while.
func terminate(ctx context.Context, t *trial) error {
	if err := t.until(ctx, t.timing.Once); err != nil {
		return err
	}
	m, err := t.follower(ctx, "all connections ended of")
	if err != nil {
		return err
	}
	f := fault{Victims: []string{m.name}, At: history.Now()}
	f.Count = f.At
	total := 0
	for begun := time.Now(); time.Since(begun) < t.timing.Storm; {
		var n int
		if err := t.pool.QueryRow(ctx, `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, m.name).Scan(&n); err != nil {
			return err
		}
		total += n
		if err := sleep(ctx, time.Second/2); err != nil {
			return err
		}
	}
	f.Until = history.Now()
	t.faults = append(t.faults, f)
	t.notef("%d connections ended, twice a second for %v", total, t.timing.Storm)
	return nil
}

// crash ends the server as a crash would, and starts it again at once. The
// clock starts when it accepts connections. The checkpoint is for the recovery to
// take about as long in each trial.
func crash(ctx context.Context, t *trial) error {
	if err := t.until(ctx, t.timing.Once); err != nil {
		return err
	}
	if _, err := t.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	f := fault{Victims: t.crew.names(), At: history.Now()}
	if err := t.server.Shutdown("immediate"); err != nil {
		return err
	}
	if err := t.server.Restart(ctx); err != nil {
		return err
	}
	f.Until = history.Now()
	f.Count = f.Until
	t.faults = append(t.faults, f)
	t.notef("the server was away for %.1f s", time.Duration(f.Until-f.At).Seconds())
	t.pool.Reset()
	return nil
}
