package dispatcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// When the jobs that run turn out to be long ones, those that wait for their slots
// go to whoever has nothing to do.
func TestWhatWaitsForLongJobsGoesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		pass(500 * time.Millisecond)
		c.shut()
		pass(100 * time.Millisecond)
		waiting := c.ahead(tb)
		if len(waiting) == 0 {
			t.Fatal("no job waits")
		}
		pass(time.Second)
		for _, id := range waiting {
			wantVerbs(t, tb, id, claim.Return)
		}
		if waiting := c.ahead(tb); len(waiting) > 0 {
			t.Errorf("jobs %v wait again", waiting)
		}
		c.open()
		for tb.ends() < 2000 {
			<-tb.progress
		}
		w.mustStop()
	})
}

// How fast jobs ended an hour ago says nothing of those that come now.
func TestAPauseIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		for tb.ends() < 2000 {
			<-tb.progress
		}
		pass(time.Hour)
		c.shut()
		tb.insert("q", "k", 100)
		w.WakeAll()
		pass(100 * time.Millisecond)
		if waiting := c.ahead(tb); len(waiting) > 0 {
			t.Errorf("jobs %v wait", waiting)
		}
		c.open()
		for tb.ends() < 2100 {
			<-tb.progress
		}
		w.mustStop()
	})
}

// Jobs that end all at once are not taken for short ones.
func TestJobsThatEndTogetherAreNotTakenForShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 20
		tb := newTable(lease)
		tb.insert("q", "k", 10*slots)
		most := 0
		s := &store{table: tb, onTrip: func(dispatcher.Trip) error { <-time.After(3 * time.Millisecond); return nil }}
		c := &crowd{begun: make(map[int64]int64)}
		w := start(t, s, dispatcher.Config{
			Queues:   []dispatcher.Queue{{Name: "q", Slots: slots}},
			SoftStop: time.Minute,
			Handle: func(ctx context.Context, row claim.Row) error {
				_ = c.handle(ctx, row)
				// One second after the other, those of a second within a few ms.
				now := time.Now()
				<-time.After(now.Truncate(time.Second).Add(time.Second + time.Duration(row.ID%slots)*500*time.Microsecond).Sub(now))
				return nil
			},
		})
		for tb.ends() < 8*slots {
			pass(20 * time.Millisecond)
			most = max(most, len(c.ahead(tb)))
		}
		if most > slots/10 {
			t.Errorf("%d jobs have waited at once", most)
		}
		w.mustStop()
	})
}
