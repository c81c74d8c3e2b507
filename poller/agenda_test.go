package poller

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The scripts below are what the agenda is told and what it answers: time,
// event, arrow, step. The interval is 30 s without jitter, deaf 1 s, guard 2 s.
// Events: step (nothing but time passed), arm QUEUE IN, hear, deaf, ask,
// somebody, looked [QUEUE=IN…] [lease=IN] [again] [others] [guard=IN]
// [leaseguard=IN] [recheck=IN], fail.
// Times of the answer count from the start. A script may not skip a time at
// which the agenda wanted to be asked.
var agendaScripts = []struct{ name, script string }{
	{"the first step ticks, deaf until told otherwise", `
		0s      step                  -> tick
		0s      looked                -> next 1s
		1s      step                  -> tick
		1.2s    looked                -> next 2.2s
	`},
	{"hearing before the first step is kept", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
	`},
	{"hearing stretches the interval, from the end of the last tick", `
		0s      step                  -> tick
		0.5s    looked                -> next 1.5s
		0.7s    hear                  -> next 30.5s
		30.5s   step                  -> tick
		31s     looked                -> next 1m1s
	`},
	{"becoming deaf ticks at once; being told again does not", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		5s      deaf                  -> tick
		5s      deaf                  ->
		5.1s    looked                -> next 6.1s
		5.2s    deaf                  -> next 6.1s
	`},
	{"becoming deaf while a tick is in flight ticks again: that one may have looked already", `
		0s      hear                  -> tick
		0.1s    deaf                  ->
		0.2s    looked                -> tick
		0.3s    looked                -> next 1.3s
	`},
	{"a tick asked for before the first step is the first tick", `
		0s      ask                   -> tick
		0s      looked                -> next 1s
	`},
	{"a tick asked for twice is one; asked for in flight it comes after", `
		0s      hear                  -> tick
		0.1s    ask                   ->
		0.2s    ask                   ->
		0.3s    looked                -> tick
		0.4s    looked                -> next 30.4s
		5s      ask                   -> tick
		5s      looked                -> next 35s
	`},
	{"an alarm rings at its time, once", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		1s      arm a 3s              -> next 4s
		4s      step                  -> wake a, next 30s
	`},
	{"the earlier alarm wins, whichever comes first", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		1s      arm a 9s              -> next 10s
		2s      arm a 3s              -> next 5s
		3s      arm a 20s             -> next 5s
		5s      step                  -> wake a, next 30s
	`},
	{"an alarm can be armed again after it rang", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm a 1s              -> next 1s
		1s      step                  -> wake a, next 30s
		1s      arm a 1s              -> next 2s
		2s      step                  -> wake a, next 30s
	`},
	{"an alarm rings while a tick is in flight", `
		0s      hear                  -> tick
		0s      arm a 1s              -> next 1s
		1s      step                  -> wake a
		4s      looked                -> next 34s
	`},
	{"each queue has its own alarm", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm c 2s              -> next 2s
		0s      arm b 1s              -> next 1s
		0s      arm a 2s              -> next 1s
		1s      step                  -> wake b, next 2s
		2s      step                  -> wake a c, next 30s
	`},
	{"a tick wakes what is due and arms what is not", `
		0s      hear                  -> tick
		0.1s    looked a=0s b=2s c=-5s -> wake a c, next 2.1s
		2.1s    step                  -> wake b, next 30.1s
	`},
	{"a tick that saw no ready job leaves the alarm: it may have looked before the job came", `
		0s      hear                  -> tick
		0s      arm a 3s              -> next 3s
		1s      looked                -> next 3s
		3s      step                  -> wake a, next 31s
	`},
	{"due but held: looked at again after 1 s, doubling up to the interval", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm a 0s              -> next 1s
		1s      step                  -> wake a, next 30s
		1s      arm a -2s             -> next 3s
		3s      step                  -> wake a, next 30s
		3s      arm a -4s             -> next 7s
		7s      step                  -> wake a, next 30s
		7s      arm a -8s             -> next 15s
		15s     step                  -> wake a, next 30s
		15s     arm a -16s            -> next 30s
		30s     step                  -> tick, next 31s
		30s     looked a=-30s         -> wake a, next 31s
		30s     arm a -30s            -> next 31s
		31s     step                  -> wake a, next 1m0s
		31s     arm a -31s            -> next 1m0s
		60s     step                  -> tick, next 1m1s
		60s     looked                -> next 1m1s
		61s     step                  -> wake a, next 1m30s
	`},
	{"due but held, said again before the look: neither sooner nor slower", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm a 0s              -> next 1s
		0.5s    arm a 0s              -> next 1s
		0.9s    arm a 0s              -> next 1s
		1s      step                  -> wake a, next 30s
		1s      arm a 0s              -> next 3s
	`},
	{"due but held, free again, held again later: starts anew at 1 s", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm a 0s              -> next 1s
		1s      step                  -> wake a, next 30s
		1s      arm a 0s              -> next 3s
		3s      step                  -> wake a, next 30s
		6s      arm a 0s              -> next 7s
	`},
	{"a job that falls due does not disturb the look at a held one", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		0s      arm a 0s              -> next 1s
		0s      arm a 0.5s            -> next 500ms
		0.5s    step                  -> wake a, next 1s
		0.5s    arm a 0s              -> next 1s
		1s      step                  -> wake a, next 30s
		1s      arm a 5s              -> next 6s
		1s      arm a 0s              -> next 3s
		3s      step                  -> wake a, next 6s
	`},
	{"the next tick comes just after the end of the earliest lease", `
		0s      hear                  -> tick
		0s      looked lease=10s      -> next 10.05s
		10.05s  step                  -> tick
		10.05s  looked                -> next 40.05s
	`},
	{"a lease that ends after the next tick changes nothing", `
		0s      hear                  -> tick
		0s      looked lease=31s      -> next 30s
	`},
	{"a lease that is over and still there is looked at once per guard", `
		0s      hear                  -> tick
		0s      looked lease=0.1s     -> next 2s
		2s      step                  -> tick
		2s      looked lease=-1.9s    -> next 4s
		4s      step                  -> tick
	`},
	{"a lease that is over is looked at as seldom as the tick says", `
		0s      hear                  -> tick
		0s      looked lease=0.1s leaseguard=8s -> next 8s
		8s      step                  -> tick
		8s      looked lease=9s leaseguard=8s -> next 17.05s
		17.05s  step                  -> tick
		18s     looked lease=0.1s     -> next 20s
	`},
	{"deaf, the tick of every second does for the lease too", `
		0s      step                  -> tick
		0s      looked lease=0.1s     -> next 1s
		1s      step                  -> tick
		1s      looked lease=-1s      -> next 2s
		1.5s    hear                  -> next 3s
	`},
	{"a full batch is followed at once by the next", `
		0s      hear                  -> tick
		0s      looked again          -> tick
		0.1s    looked again          -> tick
		0.2s    looked                -> next 30.2s
	`},
	{"a failed tick is repeated at the deaf pace, whatever it had seen before", `
		0s      hear                  -> tick
		0s      looked lease=9s again -> tick
		0s      fail                  -> next 1s
		1s      step                  -> tick
		1.5s    fail                  -> next 2.5s
		2.5s    step                  -> tick
		2.6s    looked                -> next 32.6s
	`},
	{"a failed tick does not hold up alarms", `
		0s      hear                  -> tick
		0s      fail                  -> next 1s
		0s      arm a 0.2s            -> next 200ms
		0.2s    step                  -> wake a, next 1s
	`},
	{"while others work a tick comes after each guard, and no longer", `
		0s      hear                  -> tick
		0s      looked others         -> next 2s
		2s      step                  -> tick
		2.5s    looked others         -> next 4.5s
		4.5s    step                  -> tick
		4.5s    looked                -> next 34.5s
	`},
	{"the guard is as long as the tick says", `
		0s      hear                  -> tick
		0s      looked others guard=8s -> next 8s
		8s      step                  -> tick
		8s      looked others guard=1h -> next 38s
		38s     step                  -> tick
		38s     looked others         -> next 40s
	`},
	{"deaf, the tick of every second does for others too", `
		0s      step                  -> tick
		0s      looked others         -> next 1s
		0.5s    hear                  -> next 2s
	`},
	{"somebody may have begun to work: a tick after the guard, once", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		5s      somebody              -> next 7s
		7s      step                  -> tick
		7s      looked                -> next 37s
	`},
	{"before the first look the guard is the configured one", `
		0s      hear                  -> tick
		0s      somebody              ->
		0.1s    looked                -> next 2.1s
	`},
	{"the guard after a bell is as long as the last tick said", `
		0s      hear                  -> tick
		0s      looked guard=16s      -> next 30s
		1s      somebody              -> next 17s
		17s     step                  -> tick
		17s     looked                -> next 47s
	`},
	{"many bells neither put the tick off nor make it many", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		5s      somebody              -> next 7s
		6s      somebody              -> next 7s
		6.5s    somebody              -> next 7s
		7s      step                  -> tick
		7.1s    looked                -> next 37.1s
		8s      somebody              -> next 10s
		10s     step                  -> tick
		10s     looked                -> next 40s
	`},
	{"a tick that comes earlier does for the bell", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		29s     somebody              -> next 30s
		30s     step                  -> tick
		30s     looked                -> next 1m0s
	`},
	{"a tick right behind the bell may be before the claim: another follows", `
		0s      hear                  -> tick
		0s      looked                -> next 30s
		29.9s   somebody              -> next 30s
		30s     step                  -> tick
		30s     looked                -> next 32s
		32s     step                  -> tick
		32s     looked                -> next 1m2s
	`},
	{"a bell during a tick: that one may have looked already", `
		0s      hear                  -> tick
		0.1s    somebody              ->
		0.2s    looked                -> next 2.2s
		2.2s    step                  -> tick
		2.2s    looked                -> next 32.2s
	`},
	{"after a slow tick with bells the next does not follow at once", `
		0s      hear                  -> tick
		0.1s    somebody              ->
		4s      looked                -> next 6s
	`},
	{"a recheck comes at its time, exactly, once", `
		0s      hear                  -> tick
		0s      looked recheck=1.5s   -> next 1.5s
		1.5s    step                  -> tick
		1.5s    looked                -> next 31.5s
	`},
	{"a recheck may be later than other ticks, which do not put it off by themselves", `
		0s      hear                  -> tick
		0s      looked recheck=10s others -> next 2s
		2s      step                  -> tick
		2s      looked recheck=8s others -> next 4s
	`},
	{"a failed recheck is repeated at the deaf pace", `
		0s      hear                  -> tick
		0s      looked recheck=2s     -> next 2s
		2s      step                  -> tick
		2s      fail                  -> next 3s
		3s      step                  -> tick
		3s      looked                -> next 33s
	`},
}

// TestAgendaGuardIsBounded: with a bell every few milliseconds there is one
// tick in each guard interval, whether others work or not.
func TestAgendaGuardIsBounded(t *testing.T) {
	for _, others := range []bool{false, true} {
		a := newAgenda(30*time.Second, time.Second, 2*time.Second, func() float64 { return 0.5 })
		a.hear(true)
		start := time.Now()
		ticks := 0
		for now := start; now.Before(start.Add(time.Minute)); now = now.Add(5 * time.Millisecond) {
			a.somebody(now)
			if a.step(now).tick {
				ticks++
				a.looked(now, Look{Others: others})
			}
		}
		if ticks < 29 || ticks > 31 {
			t.Errorf("others %v: %d ticks in a minute, want 30", others, ticks)
		}
	}
}

func TestAgenda(t *testing.T) {
	for _, test := range agendaScripts {
		t.Run(test.name, func(t *testing.T) {
			a := newAgenda(30*time.Second, time.Second, 2*time.Second, func() float64 { return 0.5 })
			start := time.Now()
			var wanted time.Time
			for line := range strings.Lines(test.script) {
				event, want, ok := strings.Cut(line, "->")
				if !ok {
					continue
				}
				words := strings.Fields(event)
				now := start.Add(duration(t, words[0]))
				if !wanted.IsZero() && now.After(wanted) {
					t.Fatalf("%s: the script skips the step at %v", strings.TrimSpace(line), wanted.Sub(start))
				}
				tell(t, a, now, words[1:])
				s := a.step(now)
				wanted = s.next
				if got := show(s, start); got != strings.TrimSpace(want) {
					t.Fatalf("%s: got %q", strings.TrimSpace(line), got)
				}
			}
		})
	}
}

// TestAgendaFullBatchesAreBounded guards against a tick that never empties
// its batch, for example rows it sees and cannot take.
func TestAgendaFullBatchesAreBounded(t *testing.T) {
	a := newAgenda(30*time.Second, time.Second, 2*time.Second, func() float64 { return 0.5 })
	a.hear(true)
	now := time.Now()
	end := now.Add(10 * time.Second)
	ticks := 0
	for s := a.step(now); now.Before(end) && ticks < 1000*burst; s = a.step(now) {
		if s.tick {
			ticks++
			a.looked(now, Look{Again: true})
			continue
		}
		now = s.next
	}
	if ticks != 10*burst {
		t.Errorf("%d ticks in 10 s, want %d", ticks, 10*burst)
	}
}

func TestAgendaJitter(t *testing.T) {
	for _, test := range []struct {
		spread float64
		want   time.Duration
	}{{0, 27 * time.Second}, {0.25, 28500 * time.Millisecond}, {1, 33 * time.Second}} {
		a := newAgenda(30*time.Second, time.Second, 2*time.Second, func() float64 { return test.spread })
		a.hear(true)
		now := time.Now()
		a.step(now)
		a.looked(now, Look{})
		if got := a.step(now).next.Sub(now); got.Round(time.Millisecond) != test.want {
			t.Errorf("spread %v: next tick in %v, want %v", test.spread, got, test.want)
		}
	}
}

// TestAgendaForgetsQueues guards against memory that grows with every name
// ever armed.
func TestAgendaForgetsQueues(t *testing.T) {
	a := newAgenda(30*time.Second, time.Second, 2*time.Second, func() float64 { return 0.5 })
	a.hear(true)
	now := time.Now()
	a.step(now)
	a.looked(now, Look{Next: map[string]time.Duration{"due": 0, "later": time.Second}})
	for i := range 100 {
		a.arm(now, strconv.Itoa(i), time.Second)
		a.arm(now, strconv.Itoa(i), 0)
	}
	a.step(now.Add(time.Second))
	a.step(now.Add(3 * time.Second))
	if len(a.alarms) != 0 || len(a.due) != 0 {
		t.Errorf("%d alarms and %d due queues are left", len(a.alarms), len(a.due))
	}
}

func tell(t *testing.T, a *agenda, now time.Time, words []string) {
	t.Helper()
	switch words[0] {
	case "step":
	case "arm":
		a.arm(now, words[1], duration(t, words[2]))
	case "hear":
		a.hear(true)
	case "deaf":
		a.hear(false)
	case "ask":
		a.ask()
	case "somebody":
		a.somebody(now)
	case "fail":
		a.fail(now)
	case "looked":
		look := Look{Next: make(map[string]time.Duration)}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "again":
				look.Again = true
			case "others":
				look.Others = true
			case "guard":
				look.Guard = duration(t, value)
			case "leaseguard":
				look.LeaseGuard = duration(t, value)
			case "recheck":
				look.Recheck = duration(t, value)
			case "lease":
				look.Lease, look.HasLease = duration(t, value), true
			default:
				look.Next[name] = duration(t, value)
			}
		}
		a.looked(now, look)
	default:
		t.Fatalf("unknown event %q", words)
	}
}

func show(s step, start time.Time) string {
	var parts []string
	if len(s.wake) > 0 {
		parts = append(parts, "wake "+strings.Join(s.wake, " "))
	}
	if s.tick {
		parts = append(parts, "tick")
	}
	if !s.next.IsZero() {
		parts = append(parts, fmt.Sprintf("next %v", s.next.Sub(start)))
	}
	return strings.Join(parts, ", ")
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
