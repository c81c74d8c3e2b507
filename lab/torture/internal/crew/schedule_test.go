package crew

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

func scheduled(t *testing.T, seed uint64, rate, bursts float64, n int) (transactions []transaction) {
	t.Helper()
	s, err := newSchedule("producer-1.1", seed, rate, bursts, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		transactions = append(transactions, s.next())
	}
	return transactions
}

func TestASeedRepeatsTheLoad(t *testing.T) {
	first := scheduled(t, 7, 50, 0.2, 2000)
	if !reflect.DeepEqual(first, scheduled(t, 7, 50, 0.2, 2000)) {
		t.Error("the same seed makes another load")
	}
	if reflect.DeepEqual(first, scheduled(t, 8, 50, 0.2, 2000)) {
		t.Error("another seed makes the same load")
	}
}

func TestTheLoadIsAsItWasOrdered(t *testing.T) {
	const rate = 50
	transactions := scheduled(t, 1, rate, 0, 10_000)
	var jobs, held, rolledBack, delayed float64
	ofKind, ofVia, ofQueue := make(script.Mix), make(script.Mix), make(script.Mix)
	tokens := make(map[string]bool)
	for _, x := range transactions {
		ofVia[x.via]++
		if x.hold > 0 {
			held++
		}
		if x.rollback {
			rolledBack++
		}
		for _, j := range newJobs(x.orders) {
			if err := j.Validate(); err != nil {
				t.Fatalf("%+v: %v", j, err)
			}
		}
		for _, o := range x.orders {
			jobs++
			ofKind[o.kind]++
			ofQueue[o.queue]++
			if tokens[o.Token] {
				t.Fatalf("token %s is used twice", o.Token)
			}
			tokens[o.Token] = true
			if o.delay > 0 {
				delayed++
				if x.via == "copy" {
					t.Fatalf("a delay that COPY cannot give: %+v", o)
				}
			}
			if o.kind == script.Killer && o.attempts() != 3 {
				t.Fatalf("a killer with %d attempts", o.attempts())
			}
		}
	}
	n := float64(len(transactions))
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.1*want+0.001 {
			t.Errorf("%s: %.4f, want %.4f", what, got, want)
		}
	}
	near("jobs a second", jobs/transactions[len(transactions)-1].at.Seconds(), rate)
	near("held open", held/n, 0.03)
	near("rolled back", rolledBack/n, 0.05)
	near("delayed", delayed/jobs, 0.09) // 10 %, but for COPY
	shares(near, script.DefaultMix, ofKind, jobs)
	shares(near, vias, ofVia, n)
	shares(near, queues, ofQueue, jobs)
}

func shares(near func(string, float64, float64), want, got script.Mix, all float64) {
	sum := 0.
	for _, share := range want {
		sum += share
	}
	for name, share := range want {
		near(name, got[name]/all, share/sum)
	}
}

func TestTheDefaultMixHasEveryKind(t *testing.T) {
	sum := 0.
	for kind := range kinds {
		if script.DefaultMix[kind] == 0 {
			t.Errorf("no job of kind %s", kind)
		}
		sum += script.DefaultMix[kind]
	}
	if math.Abs(sum-1) > 1e-9 || len(script.DefaultMix) != len(kinds) {
		t.Errorf("%d kinds with %v of the load", len(script.DefaultMix), sum)
	}
}

func TestALoadThatCannotBeIsRefused(t *testing.T) {
	if _, err := newSchedule("p", 1, 0, 0, nil); err == nil {
		t.Error("a rate of 0 was taken")
	}
	if _, err := newSchedule("p", 1, 1, 1.5, nil); err == nil {
		t.Error("more than all jobs in bursts were taken")
	}
	if _, err := newSchedule("p", 1, 1, 0, script.Mix{"no such kind": 1}); err == nil {
		t.Error("a kind without a handler was taken")
	}
}

func TestAnOrderIsTheSameJobEveryWay(t *testing.T) {
	o := order{kind: script.Killer, queue: script.Side, priority: 2, max: 3, delay: time.Second, Order: script.Order{Token: "x", Millis: 5}}
	want := fencepost.NewJob{Kind: script.Killer, Queue: script.Side, Priority: 2, MaxAttempts: 3, Delay: time.Second, Payload: o.Order}
	if got := newJobs([]order{o})[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := o.payload(), `{"token":"x","ms":5}`; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}
}
