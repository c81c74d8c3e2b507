package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// eight slots, so that half of them are a trip of their own.
var eight = []dispatcher.Queue{{Name: "q", Slots: 8}}

// slow is a store whose trips take a second each.
func slow(tb *table) *store {
	return &store{table: tb, onTrip: func(dispatcher.Trip) error { <-time.After(time.Second); return nil }}
}

// staggered is a handler after whose first jobs some are left to end while the
// trip of those is under way.
func staggered(ctx context.Context, row claim.Row) error {
	return sleeper(time.Duration(row.ID%8)*50*time.Millisecond)(ctx, row)
}

// Out of a backlog two trips are under way at once, and the connection of the
// second goes when the backlog has gone.
func TestTwoTripsOutOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 200)
		s := slow(tb)
		var opens, closes atomic.Int32
		s.onOpen = func(context.Context) error { opens.Add(1); return nil }
		s.onClose = func() { closes.Add(1) }
		w := start(t, s, dispatcher.Config{Queues: eight, SoftStop: time.Minute, Handle: staggered})
		for tb.ends() < 200 {
			<-tb.progress
		}
		beside, twice := s.beside()
		if beside < 10 || len(twice) > 0 {
			t.Errorf("%d trips beside others; in both: %v", beside, twice)
		}
		pass(10 * time.Second)
		if opens.Load() != 1 || closes.Load() != 1 {
			t.Errorf("a connection was opened %d times and closed %d times", opens.Load(), closes.Load())
		}
		w.mustStop()
		if got := len(tb.stored()); got != 200 {
			t.Errorf("%d outcomes stored", got)
		}
	})
}

// While jobs come one by one there is one trip at a time, however long it takes.
func TestOneTripWithoutABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		s := slow(tb)
		s.onOpen = func(context.Context) error { t.Error("a second connection is opened"); return nil }
		w := start(t, s, dispatcher.Config{Queues: eight, SoftStop: time.Minute, Handle: sleeper(time.Millisecond)})
		for range 100 {
			tb.insert("q", "k", 1)
			w.Wake("q")
			pass(300 * time.Millisecond)
		}
		w.mustStop()
		if beside, _ := s.beside(); beside > 0 || tb.ends() != 100 {
			t.Errorf("%d trips beside others, %d jobs have ended", beside, tb.ends())
		}
	})
}

// Without a second connection, refused or never answered, all goes on as with
// one.
func TestNoSecondConnection(t *testing.T) {
	for name, open := range map[string]func(context.Context) error{
		"refused":  func(context.Context) error { return errors.New("too many connections") },
		"stalling": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(lease)
				tb.insert("q", "k", 200)
				s := slow(tb)
				var opens atomic.Int32
				s.onOpen = func(ctx context.Context) error { opens.Add(1); return open(ctx) }
				w := start(t, s, dispatcher.Config{Queues: eight, SoftStop: time.Minute, Handle: staggered})
				begun := time.Now()
				for tb.ends() < 100 {
					<-tb.progress
				}
				if took := time.Since(begun); took > 40*time.Second {
					t.Errorf("it took %v", took)
				}
				w.mustStop()
				if n := opens.Load(); n < 2 || n > 5 {
					t.Errorf("tried %d times", n)
				}
				if n := w.logs.count("no second connection"); n != 1 {
					t.Errorf("said so %d times", n)
				}
			})
		})
	}
}

// pair is a worker with two trips under way. Jobs 1 and 2 are done and in the trip
// of lane 0, which asks for as many; jobs 3 to 6 are done and in that of lane 1.
type pair struct {
	*worker
	table *table
	store *store
	// answers: each trip, of the lane, waits for one; nil lets it happen.
	answers [2]chan error
}

// withTwo runs test with a pair. What its handler has not ended by then runs until
// its context ends.
func withTwo(t *testing.T, test func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 20)
		p := &pair{table: tb, store: &store{table: tb}, answers: [2]chan error{make(chan error), make(chan error)}}
		var begun atomic.Bool
		p.store.onTrip = func(trip dispatcher.Trip) error {
			if begun.Load() || len(trip.Outcomes) > 0 {
				begun.Store(true)
				return <-p.answers[trip.Lane]
			}
			return nil
		}
		p.worker = start(t, p.store, dispatcher.Config{
			Queues: eight, SoftStop: 10 * time.Second, HardStop: time.Second,
			Handle: func(ctx context.Context, row claim.Row) error {
				switch {
				case row.ID <= 2:
					return nil
				case row.ID <= 6:
					return sleeper(time.Second)(ctx, row)
				}
				<-ctx.Done()
				return ctx.Err()
			},
		})
		pass(2 * time.Second)
		if n, _ := p.store.beside(); n != 1 {
			t.Fatalf("%d trips beside others", n)
		}
		test(t, p)
	})
}

// let answers all trips from now on, on both lanes.
func (p *pair) let() {
	close(p.answers[0])
	close(p.answers[1])
}

// A stop waits for both trips, stores what they could not, hands back what they
// bring, and claims nothing more.
func TestStopWaitsForBothTrips(t *testing.T) {
	for name, failing := range map[string]int{"both work": -1, "the first fails": 0, "the second fails": 1} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, p *pair) {
				claims := p.table.claimed()
				p.cancel()
				synctest.Wait()
				for lane := range p.answers {
					select {
					case err := <-p.result:
						t.Fatalf("Run returned before the trip of lane %d: %v", lane, err)
					default:
					}
					var answer error
					if lane == failing {
						answer = claim.ErrUnknown
					}
					p.answers[lane] <- answer
					synctest.Wait()
				}
				p.let()
				if err := p.wait(); err != nil {
					t.Fatal(err)
				}
				for id := range int64(6) {
					wantVerbs(t, p.table, id+1, claim.Done)
				}
				for id := range int64(14) {
					if verbs := p.table.verbs(id + 7); len(verbs) > 1 || len(verbs) == 1 && verbs[0] != claim.Return && verbs[0] != claim.Release {
						t.Errorf("job %d: %v", id+7, verbs)
					}
				}
				if n := p.table.held(); n != 0 {
					t.Errorf("%d leases are left", n)
				}
				want := 2
				if failing >= 0 {
					want = 1
				}
				if n := p.table.claimed() - claims; n != want {
					t.Errorf("%d claims since the stop began, want those %d under way", n, want)
				}
			})
		})
	}
}

// What a trip has lost goes again, and is not taken for that of the other, whose
// answer comes first or last.
func TestEachTripAnswersForItsOwn(t *testing.T) {
	for _, first := range []int{0, 1} {
		withTwo(t, func(t *testing.T, p *pair) {
			p.answers[first] <- claim.ErrUnknown
			synctest.Wait()
			p.answers[1-first] <- nil
			p.let()
			pass(5 * time.Second)
			for id := range int64(6) {
				wantVerbs(t, p.table, id+1, claim.Done)
			}
			if _, twice := p.store.beside(); len(twice) > 0 {
				t.Errorf("in two trips at once: %v", twice)
			}
			p.mustStop()
		})
	}
}

// A recall is meant for the jobs that either of two trips under way brings.
func TestARecallOvertakesBothClaims(t *testing.T) {
	withTwo(t, func(t *testing.T, p *pair) {
		var checked list[claim.Lease]
		p.store.onCheck = func(_ context.Context, leases []claim.Lease) error {
			for _, l := range leases {
				checked.add(l)
			}
			return nil
		}
		p.Recall()
		synctest.Wait()
		checked.take()
		for lane, answer := range p.answers {
			answer <- nil
			synctest.Wait()
			// The jobs that it has brought run, and so are in hand.
			newest := int64(0)
			for _, l := range checked.take() {
				newest = max(newest, l.ID)
			}
			if want := []int64{10, 14}[lane]; newest < want-1 {
				t.Errorf("lane %d: the newest job checked is %d, want %d", lane, newest, want)
			}
		}
		p.let()
		p.mustStop()
	})
}

// A trip that only claims is waited for on the second lane as well, when nothing
// else is in hand any more.
func TestStopWaitsForASecondClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 1500)
		answer := make(chan error)
		s := &store{table: tb, onTrip: func(trip dispatcher.Trip) error {
			if trip.Lane == 1 {
				return <-answer
			}
			<-time.After(time.Second)
			return nil
		}}
		w := start(t, s, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: 1500}}, HardStop: time.Minute,
			Handle: func(ctx context.Context, _ claim.Row) error { <-ctx.Done(); return ctx.Err() },
		})
		pass(5 * time.Second)
		w.cancel()
		pass(10 * time.Second)
		if n := w.InHand(); n != 0 {
			t.Fatalf("%d jobs in hand", n)
		}
		select {
		case err := <-w.result:
			t.Fatalf("Run returned: %v", err)
		default:
		}
		answer <- nil
		if err := w.wait(); err != nil || tb.held() != 0 {
			t.Errorf("Run: %v; %d leases are left", err, tb.held())
		}
	})
}
