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
	Name: "several", About: "three faults that have nothing to do with each other begin one after the other, and end in another order",
	Length: 15 * time.Second, touches: processes | network | bells | sessions | schema | servers,
	body: func(ctx context.Context, a *act) error {
		return a.within(ctx, "several", 3, processes|network|bells|sessions|servers)
	},
}}

// simple are the faults that can go on beside others: they use no session that
// another one may end, or do not mind.
var simple = []string{
	"kill", "freeze", "pause",
	"reset", "reset-inside", "stall", "answer-lost", "latency", "slow-link",
	"bells-lost", "bells-deaf", "bells-doubled", "bells-late", "bells-forged",
	"terminate-listener", "terminate-exchange", "terminate-keeper",
	"crash-restart", "fast-restart", "kill-backend",
}

// within lets up to n simple faults, each of another kind among those that are
// given, go on beside each other, inside of another fault. They begin at
// moments of their own and last for different times.
func (a *act) within(ctx context.Context, inside string, n int, kinds kind) error {
	names := slices.Clone(simple)
	a.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var tasks sync.WaitGroup
	errs := make([]error, n)
	var used kind
	for _, name := range names {
		f, _ := Named(name)
		if n == 0 {
			break
		}
		if f.touches&used != 0 || f.touches&^kinds != 0 {
			continue
		}
		used |= f.touches
		n--
		f.Name = inside + "/" + name
		begin, length, seed := a.between(0, a.length/3), a.between(a.length/4, a.length*2/3), a.r.Uint64()
		at := n
		tasks.Go(func() {
			if wait(ctx, begin) {
				errs[at] = f.play(ctx, a.Stage, rand.New(rand.NewPCG(seed, 4)), min(length, 10*time.Second))
			}
		})
	}
	tasks.Wait()
	return errors.Join(errs...)
}
