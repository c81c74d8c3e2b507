package dispatcher

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Each case is a script: what happens, and after "=>" what the desk says to
// it. Queue a has 2 slots and 1 spare, queue b has 1 slot, queue c has 8. Times
// count from the beginning of the script. The pauses after failures have no jitter
// here.
//
//	wake a            a wake-up
//	along a on        from now on a trip with outcomes claims from a
//	crowded on        from now on many others work
//	depart            the next trip, or when to look again
//	hold              depart while nothing may be claimed
//	land a2 b0+3s     the trip is back: 2 rows of a, none of b, whose next is due in 3 s
//	land stored/a1    results of the outcomes, then rows
//	land !finish, land !unknown, land a1 !claim, land late a2
//	done a 7          the handler of job 7, of queue a, is done
//	stuck a, unstuck a 7, close, after 50ms
//
// What goes over the second lane says so: "depart => second out 1 want a2", "land
// second a2".
//
//	order             whether to open or close the connection of the second lane
//	opened, unopened, closed   what has come of that
var deskScripts = map[string]string{
	"nothing is claimed without a wake-up": `
		depart        => - next never
		wake nowhere
		depart        => - next never
		wake a
		depart        => want a2
	`,
	"a claim goes along with outcomes, if that is asked for": `
		wake a
		depart        => want a2
		land a1       => start 1
		along a on
		depart        => - next never
		done a 1
		depart        => out 1 want a2
		land stored/a0 => settled 1
		depart        => - next never
		wake a
		depart        => want a2
		land a1       => start 2
		along a off
		done a 2
		depart        => out 2
	`,
	"one trip at a time": `
		wake a
		depart        => want a2
		wake a
		wake b
		depart        => - next never
	`,
	"never more than free slots (B2)": `
		wake a
		depart        => want a2
		land a1       => start 1
		wake a
		depart        => want a1
		land a1       => start 2
		wake a
		depart        => - next never
		done a 1
		depart        => out 1 want a1
	`,
	"a full claim keeps the wake-up, for when a slot is free (B48)": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		depart        => - next never
		done a 2
		depart        => out 2 want a1
		land stored/a0 => settled 2
	`,
	"a short claim clears the wake-up": `
		wake a
		depart        => want a2
		land a1       => start 1
		depart        => - next never
		done a 1
		depart        => out 1
	`,
	"a wake-up while slots are full is kept (B48)": `
		wake b
		depart        => want b1
		land b1       => start 1
		depart        => - next never
		wake b
		depart        => - next never
		done b 1
		depart        => out 1 want b1
	`,
	"a wake-up while the claim is in flight outlives that claim": `
		wake a
		depart        => want a2
		wake a
		land a0       =>
		depart        => want a2
		land a1       => start 1
		depart        => - next never
	`,
	"an empty claim that has seen a due job in somebody's hands is repeated once, 50 ms later": `
		wake a
		depart        => want a2
		land a0+0s    => short a 0s
		depart        => - next 50ms
		after 49ms
		depart        => - next 50ms
		after 1ms
		depart        => want a2
		land a0+0s    => short a 0s
		depart        => - next never
		wake a
		depart        => want a2
		land a0+0s    => short a 0s
		depart        => - next 100ms
	`,
	"any other empty claim is not": `
		wake a
		depart        => want a2
		land a0       =>
		depart        => - next never
		wake a
		depart        => want a2
		land a0+1ms   => short a 1ms
		depart        => - next never
	`,
	"a wake-up takes the place of the repetition": `
		wake a
		depart        => want a2
		land a0+0s    => short a 0s
		after 10ms
		wake a
		depart        => want a2
		land a1       => start 1
		after 100ms
		depart        => - next never
	`,
	"what is due next is told after a short claim only": `
		wake a
		depart        => want a2
		land a1+3s    => start 1 short a 3s
		wake a
		depart        => want a1
		land a1+3s    => start 2
		done a 1
		depart        => out 1 want a1
		land stored/a0+-1s => settled 1 short a -1s
	`,
	"a claim that has not looked everywhere is made again, beside what it says of the next job": `
		wake a
		depart        => want a2
		land a0~2s    => short a 2s
		depart        => - next never
		wake a
		depart        => want a2
		land a1+-1s~2s => start 1 short a -1s short a 2s
		wake a
		depart        => want a1
		land a1~2s    => start 2
	`,
	"a claim that fails keeps the wake-up and is paced, until one works": `
		wake a
		depart        => want a2
		land !claim   =>
		depart        => - next 100ms
		wake a
		depart        => - next 100ms
		after 100ms
		depart        => want a2
		land !claim   =>
		depart        => - next 300ms
		after 200ms
		depart        => want a2
		land a2       => start 1 2
		done a 1
		depart        => out 1 want a1
		land stored/!claim => settled 1
		depart        => - next 400ms
	`,
	"the pace of claims does not hold up outcomes": `
		wake a
		depart        => want a2
		land a1       => start 1
		wake a
		depart        => want a1
		land !claim   =>
		done a 1
		depart        => out 1
		land stored   => settled 1
		depart        => - next 100ms
	`,
	"rows beside the error of another claim are run": `
		wake a
		wake b
		depart        => want a2 b1
		land a2 !claim => start 1 2
		depart        => - next 100ms
		after 100ms
		depart        => want b1
	`,
	"nothing is claimed while outcomes cannot be stored; they are sent again (B72)": `
		wake b
		depart        => want b1
		land b1       => start 1
		done b 1
		depart        => out 1 want b1
		land !finish  =>
		wake a
		depart        => - next 100ms
		after 100ms
		depart        => out 1 want a2 b1
		land !finish  =>
		depart        => - next 300ms
		after 200ms
		depart        => out 1 want a2 b1
		land stored/a0 b0 => settled 1
	`,
	"outcomes that pile up share one trip": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		depart        => - next never
		done a 1
		depart        => out 1 want a1
		done a 2
		depart        => - next never
		land stored/a1 => settled 1 start 3
		done a 3
		depart        => out 2 3 want a2
	`,
	"a busy outcome waits for itself and holds nobody up": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		done a 1
		done a 2
		depart        => out 1 2 want a2
		land busy stored/a0 => settled 2
		depart        => - next 10ms
		wake b
		depart        => want b1
		land b1       => start 3
		after 10ms
		depart        => out 1
		land busy     =>
		depart        => - next 30ms
		done b 3
		depart        => out 3 want b1
	`,
	"the wait of a busy outcome doubles up to a second": `
		wake b
		depart        => want b1
		land b1       => start 1
		done b 1
		depart        => out 1 want b1
		land busy/b0  =>
		after 10ms
		depart        => out 1
		land busy     =>
		after 20ms
		depart        => out 1
		land busy     =>
		after 40ms
		depart        => out 1
		land busy     =>
		after 80ms
		depart        => out 1
		land busy     =>
		after 160ms
		depart        => out 1
		land busy     =>
		after 320ms
		depart        => out 1
		land busy     =>
		after 640ms
		depart        => out 1
		land busy     =>
		depart        => - next 2.27s
		after 1s
		depart        => out 1
		land busy     =>
		depart        => - next 3.27s
	`,
	"a refused outcome is settled and told": `
		wake b
		depart        => want b1
		land b1       => start 1
		done b 1
		depart        => out 1 want b1
		land lost/b0  => settled 1 refused 1
	`,
	"an outcome whose first try may have been stored is not called refused": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		retry a 1
		done a 2
		depart        => out 1 2 want a2
		land !unknown =>
		after 100ms
		depart        => out 1 2 want a2
		land lost lost/a0 => settled 1 2 refused 2
	`,
	"an outcome whose job is gone is refused, unless its first try may have been stored": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		done a 1
		depart        => out 1 want a1
		land gone/a0  => settled 1 refused 1
		done a 2
		depart        => out 2
		land /!unknown =>
		after 100ms
		depart        => out 2
		land gone     => settled 2
	`,
	"more rows than asked for are handed back, not dropped (B2)": `
		wake b
		depart        => want b1
		land b3       => start 1 back 2 3
		done b 1
		depart        => out 1 want b1
	`,
	"rows with too little left of their lease are handed back, and the claim is paced": `
		wake a
		depart        => want a2
		land late a2  => back 1 2
		depart        => - next 100ms
		after 100ms
		depart        => want a2
	`,
	"rows that arrive during a stop are handed back": `
		wake a
		depart        => want a2
		close
		wake b
		land a2       => back 1 2
		depart        => - next never
	`,
	"a stop still sends outcomes": `
		wake a
		depart        => want a2
		land a1       => start 1
		wake a
		close
		done a 1
		depart        => out 1
	`,
	"held: outcomes go, claims wait": `
		wake a
		depart        => want a2
		land a1       => start 1
		wake a
		hold          => - next never
		done a 1
		hold          => out 1
		land stored   => settled 1
		depart        => want a2
	`,
	"stuck handlers open spares, up to the cap, and close them when they return (B70)": `
		wake a
		depart        => want a2
		land a2       => start 1 2
		stuck a
		depart        => want a1
		land a1       => start 3
		stuck a
		depart        => - next never
		unstuck a 1
		depart        => out 1 want a1
		land stored/a1 => settled 1 start 4
		unstuck a 2
		depart        => out 2
		land stored   => settled 2
		done a 3
		depart        => out 3 want a1
	`,
	"no spares: a stuck handler keeps its slot": `
		wake b
		depart        => want b1
		land b1       => start 1
		stuck b
		wake b
		depart        => - next never
	`,
	"a queue whose claims fail does not stand before the others for ever": `
		wake a
		wake b
		depart        => want a2 b1
		land !claim   =>
		after 100ms
		depart        => want b1 a2
		land b1 !claim => start 1
		after 200ms
		depart        => want a2
	`,
	"in a backlog less than a quarter of the slots waits, as long as for the last trip": `
		wake c
		depart        => want c8
		after 5ms
		land c8       => start 1 2 3 4 5 6 7 8
		depart        => - next never
		done c 1
		depart        => - next 10ms
		after 1ms
		wake c
		depart        => - next 10ms
		done c 2
		depart        => out 1 2 want c2
		after 4ms
		land stored stored/c2 => settled 1 2 start 9 10
		done c 3
		depart        => - next 14ms
		after 3ms
		depart        => - next 14ms
		after 1ms
		depart        => out 3 want c1
		land stored/c0 => settled 3
		done c 4
		depart        => out 4
	`,
	"however long the last trip took, 20 ms is enough": `
		wake c
		depart        => want c8
		after 3s
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		depart        => - next 3.02s
	`,
	"a wake-up after a short claim is answered at once": `
		wake c
		depart        => want c8
		after 5ms
		land c7       => start 1 2 3 4 5 6 7
		depart        => - next never
		wake c
		depart        => want c1
		after 5ms
		land c0       =>
		done c 1
		depart        => out 1
	`,
	"a trip that leaves anyway takes along what would have waited": `
		wake c
		depart        => want c8
		after 5ms
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		depart        => - next 10ms
		wake b
		depart        => out 1 want b1 c1
	`,
	"without a claim to make outcomes do not wait for one": `
		wake c
		depart        => want c8
		after 5ms
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		hold          => out 1
		after 5ms
		land stored   => settled 1
		depart        => - next 15ms
		close
		done c 2
		depart        => out 2
	`,
	"what waits for a pause after a failure puts nothing off": `
		wake c
		depart        => want c8
		after 5ms
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		after 5ms
		depart        => - next 15ms
		after 5ms
		depart        => out 1 want c1
		land stored/!claim => settled 1
		done c 2
		depart        => out 2
	`,
	"a haul without results is no proof of anything": `
		wake b
		depart        => want b1
		land b1       => start 1
		done b 1
		depart        => out 1 want b1
		land          =>
		depart        => - next 100ms
		after 100ms
		depart        => out 1 want b1
	`,
}

func TestDesk(t *testing.T) { runDeskScripts(t, deskScripts) }

func runDeskScripts(t *testing.T, scripts map[string]string) {
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			s := newDeskScript()
			for line := range strings.Lines(script) {
				do, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
				if do = strings.TrimSpace(do); do == "" {
					continue
				}
				if got, want := s.do(do), strings.TrimSpace(want); got != want {
					t.Fatalf("%s => %s\nwant %s\nin:\n%s", do, got, want, script)
				}
				for _, q := range s.desk.queues {
					if q.busy+q.asking() > q.Slots+q.Spares || q.busy < 0 {
						t.Fatalf("after %s: %d slots of %s are taken and %d asked for", do, q.busy, q.Name, q.asking())
					}
				}
			}
		})
	}
}

type deskScript struct {
	desk   *desk
	begin  time.Time
	now    time.Time
	trips  [lanes]Trip
	lastID int64
}

func newDeskScript() *deskScript {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &deskScript{begin: begin, now: begin}
	s.desk = newDesk([]Queue{{Name: "a", Slots: 2, Spares: 1}, {Name: "b", Slots: 1}, {Name: "c", Slots: 8}})
	s.desk.claims.curve.Jitter, s.desk.outbox.pace.curve.Jitter, s.desk.second.pace.curve.Jitter = -1, -1, -1
	return s
}

func (s *deskScript) do(line string) string {
	words := strings.Fields(line)
	switch words[0] {
	case "wake":
		if q := s.desk.byName[words[1]]; q != nil {
			q.wake()
		}
	case "crowded":
		s.desk.crowded = words[1] == "on"
	case "along":
		s.desk.byName[words[1]].along = words[2] == "on"
	case "after":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			panic(err)
		}
		s.now = s.now.Add(d)
	case "close":
		s.desk.closed = true
	case "order":
		open, ok := s.desk.second.order(s.now)
		switch {
		case open:
			return "open"
		case ok:
			return "close"
		}
		return "-"
	case "opened", "closed":
		s.desk.second.changed(s.now, words[0] == "opened", nil)
	case "unopened":
		s.desk.second.changed(s.now, true, errors.New("no"))
	case "stuck":
		s.desk.byName[words[1]].stuck++
	case "done", "retry", "unstuck":
		q := s.desk.byName[words[1]]
		q.busy--
		verb := claim.Done
		switch words[0] {
		case "retry":
			verb = claim.Retry
		case "unstuck":
			q.stuck--
		}
		id, _ := strconv.ParseInt(words[2], 10, 64)
		s.desk.outbox.put(claim.Outcome{Lease: claim.Lease{ID: id}, Verb: verb})
	case "depart", "hold":
		return s.depart(words[0] == "hold")
	case "land":
		return s.land(strings.TrimPrefix(line, "land"))
	default:
		panic(line)
	}
	return ""
}

func (s *deskScript) depart(hold bool) string {
	trip, next, ok := s.desk.depart(s.now, hold)
	if !ok {
		if next.IsZero() {
			return "- next never"
		}
		return "- next " + next.Sub(s.begin).String()
	}
	s.trips[trip.Lane] = trip
	var said []string
	if trip.Lane == 1 {
		said = append(said, "second")
	}
	for i, o := range trip.Outcomes {
		if i == 0 {
			said = append(said, "out")
		}
		said = append(said, fmt.Sprint(o.ID))
	}
	for i, w := range trip.Wants {
		if i == 0 {
			said = append(said, "want")
		}
		said = append(said, fmt.Sprint(w.Queue, w.Limit))
	}
	return strings.Join(said, " ")
}

func (s *deskScript) land(line string) string {
	var haul Haul
	late := false
	line, second := strings.CutPrefix(line, " second")
	trip := s.trips[0]
	if second {
		trip = s.trips[1]
	}
	results, claims, both := strings.Cut(line, "/")
	if !both && len(trip.Wants) > 0 {
		results, claims = "", line
	}
	for _, w := range strings.Fields(results) {
		haul.Results = append(haul.Results, map[string]claim.Result{"stored": claim.Stored, "lost": claim.Lost, "busy": claim.Busy, "gone": claim.Gone}[w])
	}
	for _, w := range strings.Fields(claims) {
		switch w {
		case "late":
			late = true
		case "!finish":
			haul.FinishErr = errors.New("no")
		case "!unknown":
			haul.FinishErr = fmt.Errorf("no: %w", claim.ErrUnknown)
		case "!claim":
			haul.ClaimErr = errors.New("no")
		default:
			haul.Claimed = append(haul.Claimed, s.claimed(w))
		}
	}
	l := s.desk.land(s.now, trip, check(trip, haul), late)
	var said []string
	say := func(what string, ids ...int64) {
		if len(ids) > 0 {
			said = append(said, what)
		}
		for _, id := range ids {
			said = append(said, fmt.Sprint(id))
		}
	}
	var settled, refused, start, back []int64
	for _, x := range l.settled {
		settled = append(settled, x.ID)
	}
	for _, x := range l.refused {
		refused = append(refused, x.ID)
	}
	for _, x := range l.start {
		x.slots.busy += len(x.rows)
		for _, row := range x.rows {
			start = append(start, row.ID)
		}
	}
	for _, x := range l.back {
		back = append(back, x.ID)
	}
	say("settled", settled...)
	say("refused", refused...)
	say("start", start...)
	say("back", back...)
	for _, x := range l.short {
		said = append(said, "short "+x.queue+" "+x.next.String())
	}
	return strings.Join(said, " ")
}

// claimed reads "a2+3s~1s": two new rows, the next is due in 3 s, and the claim
// is to be made again in 1 s.
func (s *deskScript) claimed(word string) (c claim.Claimed) {
	word, again, _ := strings.Cut(word, "~")
	c.Again, _ = time.ParseDuration(again)
	count, next, ok := strings.Cut(word[1:], "+")
	if c.HasNext = ok; ok {
		c.Next, _ = time.ParseDuration(next)
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(word)
	}
	for range n {
		s.lastID++
		c.Rows = append(c.Rows, claim.Row{ID: s.lastID})
	}
	return c
}

// However many slots are free, one claim asks for no more than it can bring in
// good time; the next one asks for more at once.
func TestAClaimIsBounded(t *testing.T) {
	now := time.Now()
	d := newDesk([]Queue{{Name: "q", Slots: 2*mostRows + 10}})
	d.byName["q"].wake()
	for range 2 {
		trip, _, ok := d.depart(now, false)
		if !ok || trip.Wants[0].Limit != mostRows {
			t.Fatalf("asked for %v", trip.Wants)
		}
		now = now.Add(5 * time.Millisecond)
		d.land(now, trip, Haul{Claimed: []claim.Claimed{{Rows: make([]claim.Row, mostRows)}}}, false)
		d.byName["q"].busy += mostRows
	}
	// A quarter of one claim, not of all slots, is worth a trip.
	for free := 10; free <= mostRows/4; free++ {
		trip, _, ok := d.depart(now, false)
		if ok != (free == mostRows/4) || ok && trip.Wants[0].Limit != free {
			t.Fatalf("with %d slots free: asked for %v", free, trip.Wants)
		}
		d.byName["q"].busy--
	}
}

func TestATripTakesABoundedNumberOfOutcomes(t *testing.T) {
	now := time.Now()
	box := newOutbox()
	for id := range int64(mostOutcomes + 5) {
		box.put(claim.Outcome{Lease: claim.Lease{ID: id}})
	}
	if n := len(box.take(now, 0)); n != mostOutcomes {
		t.Fatalf("took %d", n)
	}
	box.kept(now, 0, false)
	now = box.pace.until
	again := box.take(now, 0)
	if len(again) != mostOutcomes || again[0].ID != 0 {
		t.Fatalf("took %d again, first %d", len(again), again[0].ID)
	}
	box.answered(now, 0, make([]claim.Result, len(again)))
	if rest := box.take(now, 0); len(rest) != 5 || rest[0].ID != mostOutcomes {
		t.Fatalf("the rest: %v", rest)
	}
}
