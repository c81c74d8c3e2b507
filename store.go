package fencepost

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/internal/peer"
)

// stepTimeout bounds each statement on our own connections. Claims are not
// cancelled by a stop, so this is what ends one on a connection that stalls;
// jobs that such a call has claimed come back when their lease is over.
const stepTimeout = 5 * time.Second

// store is the dispatcher's way to the database: outcomes and claims over the
// connections of the exchange, extensions over the keeper's.
type store struct {
	client   *Client
	kinds    []string
	exchange *line // the first lane's, and whatever else is asked
	second   *line // open during a backlog
	keeper   *line
	marks    *claim.Marks
	teller   func(queue string) claim.Teller // who tells if nothing is left; zero: nobody
	lanes    [2]lane

	rejected sync.Mutex // guards what follows
	said     time.Time  // that the database rejects outcomes
}

// lane is one of the two ways of trips. It is of the goroutine alone that the
// dispatcher has for it.
type lane struct {
	*line
	apart bool          // the last exchange in one commit did not work
	room  [][]claim.Row // for the rows of the next one, those of the last
}

func newStore(c *Client) *store {
	s := &store{
		client:   c,
		kinds:    c.kinds(),
		exchange: c.newLine("exchange"),
		second:   c.newLine("exchange 2"),
		keeper:   c.newLine("keeper"),
		marks:    claim.NewMarks(),
	}
	s.lanes = [2]lane{{line: s.exchange}, {line: s.second}}
	return s
}

// Exchange makes the whole trip in one commit. If that does not work the parts
// go one by one, so that one that never works keeps no outcome from being stored
// and no other queue from being asked: at once if the server has refused it, or
// else, since it may have happened, from the next trip on.
func (s *store) Exchange(ctx context.Context, trip dispatcher.Trip) (haul dispatcher.Haul) {
	defer func() { s.client.health.note(exchangeLoop, cmp.Or(haul.FinishErr, haul.ClaimErr)) }()
	way := &s.lanes[trip.Lane]
	parts := len(trip.Wants)
	if len(trip.Outcomes) > 0 {
		parts++
	}
	if parts > 1 && !way.apart {
		haul, err := s.inOne(ctx, way, trip)
		way.apart = err != nil
		if !errors.Is(err, claim.ErrApart) {
			return haul
		}
	}
	haul = s.oneByOne(ctx, way, trip)
	if parts > 1 && haul.FinishErr == nil && haul.ClaimErr == nil {
		way.apart = false
	}
	return haul
}

func (s *store) inOne(ctx context.Context, way *lane, trip dispatcher.Trip) (haul dispatcher.Haul, err error) {
	requests := make([]claim.Request, len(trip.Wants))
	for i, want := range trip.Wants {
		requests[i] = s.request(want)
		if i < len(way.room) {
			requests[i].Into = way.room[i]
		}
	}
	way.room = way.room[:0]
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err = way.use(ctx, func(conn *pgx.Conn) (err error) {
		haul.Results, haul.Claimed, err = s.client.table.Exchange(ctx, conn, trip.Outcomes, requests, s.client.config.Lease, s.client.workerID)
		return err
	})
	s.learn(requests, haul.Claimed, err)
	switch {
	case err == nil:
		s.stored(trip.Outcomes, haul.Results)
		for _, c := range haul.Claimed {
			way.room = append(way.room, c.Rows)
		}
	case len(trip.Outcomes) > 0:
		haul.FinishErr = err
	default:
		haul.ClaimErr = err
	}
	return haul, err
}

func (s *store) oneByOne(ctx context.Context, way *lane, trip dispatcher.Trip) (haul dispatcher.Haul) {
	if len(trip.Outcomes) > 0 {
		haul.Results, haul.FinishErr = s.finish(ctx, way, trip.Outcomes)
		if haul.FinishErr != nil {
			return haul
		}
	}
	haul.Claimed = make([]claim.Claimed, len(trip.Wants))
	for i, want := range trip.Wants {
		haul.Claimed[i], haul.ClaimErr = s.claim(ctx, way, want)
		if haul.ClaimErr != nil {
			break // what was claimed before it is the dispatcher's all the same
		}
	}
	return haul
}

func (s *store) finish(ctx context.Context, way *lane, outcomes []claim.Outcome) (results []claim.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err = way.use(ctx, func(conn *pgx.Conn) (err error) {
		results, err = s.client.table.Finish(ctx, conn, outcomes)
		if errors.Is(err, claim.ErrRejected) {
			s.sayRejected(ctx, err)
			err = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.stored(outcomes, results)
	return results, nil
}

// stored settles what handlers have completed in transactions of their own.
func (s *store) stored(outcomes []claim.Outcome, results []claim.Result) {
	for i, result := range results {
		lease := outcomes[i].Lease
		if result == claim.Gone && s.client.completed.has(lease) {
			results[i] = claim.Stored
		}
		if result != claim.Busy {
			s.client.completed.remove(lease)
		}
	}
}

// sayRejected logs that the database rejects outcomes. They are sent again
// every second; once a minute is enough to say so.
func (s *store) sayRejected(ctx context.Context, err error) {
	s.rejected.Lock()
	defer s.rejected.Unlock()
	if now := time.Now(); now.Sub(s.said) > time.Minute {
		s.said = now
		s.client.config.Logger.ErrorContext(ctx, "the database rejects an outcome; it will be sent again", "error", err)
	}
}

func (s *store) claim(ctx context.Context, way *lane, want dispatcher.Want) (_ claim.Claimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	requests, answers := []claim.Request{s.request(want)}, make([]claim.Claimed, 1)
	err = way.use(ctx, func(conn *pgx.Conn) (err error) {
		answers[0], err = s.client.table.Claim(ctx, conn, requests[0], s.client.config.Lease, s.client.workerID)
		return err
	})
	s.learn(requests, answers, err)
	return answers[0], err
}

func (s *store) request(want dispatcher.Want) claim.Request {
	return claim.Request{
		Queue: want.Queue, Kinds: s.kinds, Limit: want.Limit,
		Look: s.marks.Look(want.Queue, time.Now()), Teller: s.teller(want.Queue),
	}
}

// learn takes from the answers to claims where the next ones are to begin.
func (s *store) learn(requests []claim.Request, answers []claim.Claimed, err error) {
	for i, r := range requests {
		if err != nil {
			s.marks.Forget(r.Queue)
		} else {
			answers[i].Again = s.marks.Learn(r, time.Now(), answers[i])
		}
	}
}

func (s *store) Extend(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	return s.keep(ctx, func(ctx context.Context, conn *pgx.Conn) ([]claim.Loss, error) {
		return s.client.table.Extend(ctx, conn, leases, s.client.config.Lease)
	})
}

func (s *store) Check(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	return s.keep(ctx, func(ctx context.Context, conn *pgx.Conn) ([]claim.Loss, error) {
		return s.client.table.Check(ctx, conn, leases)
	})
}

// keep asks on the keeper's connection which leases are lost.
func (s *store) keep(ctx context.Context, ask func(context.Context, *pgx.Conn) ([]claim.Loss, error)) (lost []claim.Loss, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err = s.keeper.use(ctx, func(conn *pgx.Conn) (err error) {
		lost, err = ask(ctx, conn)
		return err
	})
	s.client.health.note(keeperLoop, err)
	return s.taken(lost), err
}

// taken leaves out the leases of jobs that are gone because they are done.
func (s *store) taken(lost []claim.Loss) []claim.Loss {
	return slices.DeleteFunc(lost, func(l claim.Loss) bool {
		return l.Reason == claim.ReasonGone && s.client.completed.has(l.Lease)
	})
}

func (s *store) Rest() { s.keeper.close() }

func (s *store) OpenSecond(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := s.second.use(ctx, func(conn *pgx.Conn) error { return peer.Ping(ctx, conn) })
	if err != nil {
		s.second.close() // nobody will until it is opened
	}
	return err
}

func (s *store) CloseSecond() { s.second.close() }

// leaseSet is a set of claims, for any number of goroutines.
type leaseSet struct {
	mu  sync.Mutex
	set map[claim.Lease]struct{}
}

func (s *leaseSet) add(l claim.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = make(map[claim.Lease]struct{})
	}
	s.set[l] = struct{}{}
}

func (s *leaseSet) has(l claim.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.set[l]
	return ok
}

func (s *leaseSet) remove(l claim.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, l)
}
