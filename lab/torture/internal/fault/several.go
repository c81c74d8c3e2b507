package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

var severalFaults = []Fault{{
	Name: "several", About: "three faults that have nothing to do with each other begin one after the other, and the first is the last to end",
	Length: 15 * time.Second, touches: processes | network | bells | sessions | schema | servers,
	body: func(ctx context.Context, a *act) error {
		return a.within(ctx, "several", 3, processes|network|bells|sessions|servers)
	},
}}

// Faults that can go on beside others: they use no session that another one may
// end, or do not mind.
var (
	// lasting go on for as long as they may.
	lasting = []string{
		"reset", "reset-inside", "stall", "latency", "slow-link",
		"bells-lost", "bells-deaf", "bells-doubled", "bells-late", "bells-forged",
		"terminate-listener", "terminate-exchange", "terminate-keeper",
	}
	// passing may be over before.
	passing = []string{
		"kill", "freeze", "pause", "answer-lost",
		"crash-restart", "fast-restart", "kill-backend",
	}
)

// within lets n simple faults, each of another kind among those that are given,
// go on beside each other, inside of another fault. One begins before the
// others, and ends when they are over; these begin at moments of their own and
// last for different times.
func (a *act) within(ctx context.Context, inside string, n int, kinds kind) error {
	var used kind
	pick := func(names ...string) Fault { // there always is one
		names = slices.Clone(names)
		a.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		f, _ := Named(names[slices.IndexFunc(names, func(name string) bool {
			f, _ := Named(name)
			return f.touches&used == 0 && f.touches&^kinds == 0
		})])
		used |= f.touches
		f.Name = inside + "/" + f.Name
		return f
	}
	play := func(ctx context.Context, f Fault, length time.Duration, seed uint64) error {
		return f.play(ctx, a.Stage, rand.New(rand.NewPCG(seed, 4)), length)
	}

	errs := make([]error, n)
	var first, others sync.WaitGroup
	outer, seed := pick(lasting...), a.r.Uint64()
	whole, end := context.WithCancel(ctx)
	defer end()
	first.Go(func() { errs[0] = play(whole, outer, a.length+mendTime, seed) })
	for i := 1; i < n; i++ {
		f, seed := pick(slices.Concat(lasting, passing)...), a.r.Uint64()
		begin, length := a.between(a.length/10, a.length/3), a.between(a.length/4, a.length*2/3)
		others.Go(func() {
			if wait(ctx, begin) {
				errs[i] = play(ctx, f, min(length, 10*time.Second), seed)
			}
		})
	}
	others.Wait()
	wait(ctx, a.length/10)
	end()
	first.Wait()
	return errors.Join(errs...)
}
