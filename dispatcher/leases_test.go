package dispatcher

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Each case is a script. The lease is 12 s, so a lease is extended when it is
// 4 s old, and goes along with others from 2 s on; an extension may take 4 s.
// Times count from the beginning; pauses after failures have no jitter.
//
//	add 1           claimed just now, its handler runs
//	add 1 6s        and is stuck when it still runs 6 s from now
//	end 1           the handler has returned
//	drop 1          its outcome is stored
//	at 4s           what is due then, and when to look again
//	back            the extension is back; back taken 1, back !err
//	failing
var leaseScripts = map[string]string{
	"extended every third of the lease, counted from when the extension was sent": `
		add 1
		at 0s     => next 4s
		at 3.9s   => next 4s
		at 4s     => extend 1 next 12s
		at 5s     => next 12s
		back      =>
		at 5s     => next 8s
		at 8s     => extend 1 next 16s
	`,
	"leases that are soon to be extended go along": `
		add 1
		at 1s     => next 4s
		add 2
		at 2.5s   => next 4s
		add 3
		at 4s     => extend 1 2 next 12s
		back      =>
		at 4s     => next 6.5s
		at 6.5s   => extend 1 2 3 next 14.5s
	`,
	"a lease that runs out is told before the extension that comes too late (SIGSTOP)": `
		add 1
		at 0s     => next 4s
		at 30s    => lapsed 1 extend 1
		back taken 1 =>
		at 30s    =>
	`,
	"a lease runs out while an extension hangs": `
		add 1
		at 4s     => extend 1 next 12s
		at 8s     => next 12s
		at 12s    => lapsed 1
		at 13s    =>
		back !err =>
		at 13s    => next 13.1s
		at 13.1s  => extend 1
	`,
	"a failed extension is repeated, paced": `
		add 1
		at 4s     => extend 1 next 12s
		back !err =>
		at 4s     => next 4.1s
		at 4.1s   => extend 1 next 12s
		back !err =>
		at 4.1s   => next 4.3s
		at 4.3s   => extend 1 next 12s
		back      =>
		at 4.3s   => next 8.3s
	`,
	"a lease under another fence: its handler is cancelled, nothing more is extended": `
		add 1
		add 2
		at 4s     => extend 1 2 next 12s
		back taken 2 => cancel 2
		at 4s     => next 8s
		at 8s     => extend 1 next 16s
		back      =>
		at 20s    => lapsed 1 extend 1
	`,
	"a lost lease whose handler has returned cancels nobody": `
		add 1
		at 4s     => extend 1 next 12s
		end 1
		back taken 1 =>
		at 4s     =>
	`,
	"extended until the outcome is stored, not until the handler returns (B56)": `
		add 1
		at 1s     => next 4s
		end 1
		at 4s     => extend 1
		back      =>
		at 8s     => extend 1
		back      =>
		drop 1
		at 8s     => rest
		back      =>
		at 12s    =>
	`,
	"a stuck handler is told once and its lease is let go (B70)": `
		add 1 6s
		at 0s     => next 4s
		at 4s     => extend 1 next 6s
		back      =>
		at 6s     => stuck 1
		at 20s    =>
		end 1
		drop 1
		at 20s    => rest
	`,
	"a handler that returns in time is never stuck": `
		add 1 6s
		end 1
		at 6s     => extend 1
	`,
	"no timeout, never stuck (B68)": `
		add 1
		at 4s     => extend 1 next 12s
		back      =>
		at 8s     => extend 1 next 16s
		back      =>
		at 12s    => extend 1 next 20s
	`,
	"rest only after an extension, and only once nothing is in hand": `
		add 1
		end 1
		drop 1
		at 1s     => next 4s
		add 2
		at 5s     => extend 2 next 13s
		drop 2
		at 5s     => next 13s
		back      =>
		at 5s     => rest
		add 3
		at 9s     => next 17s
		back      =>
		at 9s     => extend 3 next 17s
	`,
	"failing while leases in hand cannot be extended (B61)": `
		add 1
		failing   => false
		at 4s     => extend 1 next 12s
		failing   => false
		back !err =>
		failing   => true
		at 5s     => extend 1 next 12s
		failing   => true
		back      =>
		failing   => false
	`,
	"an extension that hangs counts as failing": `
		add 1
		at 4s     => extend 1 next 12s
		at 8s     => next 12s
		failing   => true
		back      =>
		failing   => false
	`,
	"a recall checks all that is in hand at once, young and old, and extends nothing": `
		add 1
		at 3s     => next 4s
		add 2
		recall
		at 3s     => check 1 2 next 12s
		back cancelled 2 => cancel 2
		at 3s     => next 4s
		at 4s     => extend 1 next 12s
	`,
	"a recall while the keeper is away is not lost": `
		add 1
		at 4s     => extend 1 next 12s
		recall
		at 4s     => next 12s
		back      =>
		at 4s     => check 1 next 16s
		recall
		at 4s     => next 16s
		back      =>
		at 4s     => check 1 next 16s
		back      =>
		at 4s     => next 8s
	`,
	"recalls before the check is sent are one": `
		add 1
		recall
		recall
		at 1s     => check 1 next 12s
		back      =>
		at 1s     => next 4s
	`,
	"an extension that is due goes before the check": `
		add 1
		add 2
		recall
		at 4s     => extend 1 2 next 12s
		back      =>
		at 4s     => check 1 2 next 16s
	`,
	"a check that fails is repeated, paced, and holds up no extension": `
		add 1
		at 3.95s  => next 4s
		recall
		at 3.95s  => check 1 next 12s
		back !err =>
		failing   => false
		at 3.95s  => next 4s
		at 4s     => extend 1 next 12s
		back      =>
		at 4s     => next 4.05s
		at 4.05s  => check 1 next 16s
		back !err =>
		at 4.05s  => next 4.25s
		at 4.25s  => check 1 next 16s
		back      =>
		at 4.25s  => next 8s
	`,
	"a check that works does not say that extensions do": `
		add 1
		at 4s     => extend 1 next 12s
		back !err =>
		recall
		at 4s     => check 1 next 12s
		back      =>
		failing   => true
		at 4s     => next 4.1s
	`,
	"a recall with nothing in hand is over": `
		recall
		at 0s     =>
		add 1
		at 1s     => next 4s
	`,
	"what is lost is not checked again": `
		add 1
		recall
		at 1s     => check 1 next 12s
		back gone 1 => cancel 1
		recall
		at 1s     =>
	`,
	"a job that was cancelled after its handler returned cancels nobody": `
		add 1
		end 1
		recall
		at 1s     => check 1
		back cancelled 1 =>
		at 1s     =>
	`,
	"a handler whose lease has lapsed is told once, but its job was cancelled": `
		add 1
		at 13s    => lapsed 1 extend 1
		back !err =>
		recall
		at 13s    => check 1
		back cancelled 1 => cancel 1
	`,
	"the connection is let go after a check too": `
		add 1
		recall
		at 1s     => check 1 next 12s
		end 1
		drop 1
		back      =>
		at 1s     => rest
	`,
	"not failing once nothing is left that could show the contrary": `
		add 1
		add 2 6s
		at 4s     => extend 1 2 next 6s
		back !err =>
		failing   => true
		end 1
		drop 1
		failing   => true
		at 6s     => stuck 2
		failing   => false
		add 3
		failing   => false
	`,
}

func TestLeases(t *testing.T) {
	for name, script := range leaseScripts {
		t.Run(name, func(t *testing.T) {
			s := newLeaseScript()
			for line := range strings.Lines(script) {
				do, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
				if do = strings.TrimSpace(do); do == "" {
					continue
				}
				if got, want := s.do(do), strings.TrimSpace(want); got != want {
					t.Fatalf("%s => %s\nwant %s\nin:\n%s", do, got, want, script)
				}
			}
		})
	}
}

type leaseScript struct {
	leases *leases
	begin  time.Time
	now    time.Time
	sent   kept // without its answer
}

func newLeaseScript() *leaseScript {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &leaseScript{leases: newLeases(12 * time.Second), begin: begin, now: begin}
	s.leases.pace.curve.Jitter, s.leases.checks.curve.Jitter = -1, -1
	return s
}

func (s *leaseScript) do(line string) string {
	words := strings.Fields(line)
	var lease claim.Lease
	if len(words) > 1 {
		lease.ID, _ = strconv.ParseInt(words[len(words)-1], 10, 64)
	}
	switch words[0] {
	case "add":
		lease.ID, _ = strconv.ParseInt(words[1], 10, 64)
		h := &held{row: claim.Row{ID: lease.ID}, since: s.now, running: true}
		if len(words) > 2 {
			d, _ := time.ParseDuration(words[2])
			h.stuckAt = s.now.Add(d)
		}
		s.leases.add(h)
	case "end":
		s.leases.held[lease].running = false
	case "recall":
		s.leases.recall(s.now)
	case "drop":
		s.leases.drop(lease)
	case "failing":
		return fmt.Sprint(s.leases.failing(s.now))
	case "at":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			panic(err)
		}
		s.now = s.begin.Add(d)
		return s.due()
	case "back":
		k := s.sent
		if line == "back !err" {
			k.err = errors.New("no")
		} else if len(words) > 1 {
			k.lost = []claim.Loss{{Lease: lease, Reason: claim.Reason(words[1])}}
		}
		return ids("cancel", s.leases.answered(s.now, k))
	default:
		panic(line)
	}
	return ""
}

func (s *leaseScript) due() string {
	d := s.leases.due(s.now)
	said := []string{ids("lapsed", d.lapsed), ids("stuck", d.stuck)}
	if d.order != nil {
		var named []*held
		for _, l := range d.order.leases {
			named = append(named, &held{row: claim.Row{ID: l.ID}})
		}
		switch {
		case len(named) == 0:
			said = append(said, "rest")
		case d.order.check:
			said = append(said, ids("check", named))
		default:
			said = append(said, ids("extend", named))
		}
		s.sent = kept{order: *d.order, sent: s.now}
	}
	if !s.leases.look.IsZero() {
		if !s.leases.look.After(s.now) {
			return "looks again without end"
		}
		said = append(said, "next "+s.leases.look.Sub(s.begin).String())
	}
	return strings.Join(strings.Fields(strings.Join(said, " ")), " ")
}

func ids(what string, held []*held) string {
	if len(held) == 0 {
		return ""
	}
	var ids []int64
	for _, h := range held {
		ids = append(ids, h.row.ID)
	}
	slices.Sort(ids)
	return what + " " + strings.Trim(fmt.Sprint(ids), "[]")
}

func TestStopPhases(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	type moment struct {
		at   float64
		want phase
	}
	for name, test := range map[string]struct {
		stop    stop
		moments []moment
	}{
		"not begun":                     {stop{soft: 1, hard: 1}, []moment{{0, working}, {1e6, working}}},
		"hurried, but not begun":        {stop{soft: 1, hard: 1, hurried: at(0)}, []moment{{0, working}, {1e6, working}}},
		"soft, hard, storing":           {stop{soft: 20 * time.Second, hard: 5 * time.Second, begun: at(10)}, []moment{{9, working}, {10, draining}, {29.9, draining}, {30, cancelling}, {34.9, cancelling}, {35, storing}, {38.9, storing}, {39, over}}},
		"hurried while draining":        {stop{soft: 20 * time.Second, hard: 5 * time.Second, begun: at(10), hurried: at(12)}, []moment{{12, cancelling}, {17, storing}, {21, over}}},
		"hurried before":                {stop{soft: 20 * time.Second, hard: 5 * time.Second, begun: at(10), hurried: at(3)}, []moment{{9.9, working}, {10, cancelling}, {15, storing}}},
		"hurried when it makes no odds": {stop{soft: 20 * time.Second, hard: 5 * time.Second, begun: at(10), hurried: at(33)}, []moment{{32, cancelling}, {34.9, cancelling}, {35, storing}}},
		"no patience":                   {stop{begun: at(10)}, []moment{{9.9, working}, {10, storing}, {14, over}}},
	} {
		for _, m := range test.moments {
			if got := test.stop.phase(at(m.at)); got != m.want {
				t.Errorf("%s: phase %d after %v s, want %d", name, got, m.at, m.want)
			}
		}
	}
}
