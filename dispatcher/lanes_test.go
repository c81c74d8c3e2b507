package dispatcher

import "testing"

// As deskScripts. In each, c has a backlog, and with half of its 8 slots free
// something for a second trip.
var laneScripts = map[string]string{
	"a second trip goes beside the first out of a backlog, once there is a connection": `
		wake c
		depart        => want c8
		depart        => - next never
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		order         => -
		done c 3
		done c 4
		done c 5
		depart        => - next never
		order         => -
		done c 6
		depart        => - next never
		order         => open
		depart        => - next never
		order         => -
		opened
		depart        => second out 3 4 5 6 want c4
		done c 7
		done c 8
		depart        => - next never
		land second stored stored stored stored/c4 => settled 3 4 5 6 start 9 10 11 12
		depart        => - next never
		land stored stored/c2 => settled 1 2 start 13 14
		depart        => out 7 8 want c2
	`,
	"none while many others work": `
		crowded on
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => -
		crowded off
		depart        => - next never
		order         => open
	`,
	"not from a queue that has come back short, nor for anything else that is called for": `
		wake a
		wake c
		depart        => want a2 c8
		land a1 c5    => start 1 2 3 4 5 6
		wake a
		wake b
		wake c
		done c 2
		depart        => out 2 want a1 b1 c4
		wake a
		wake b
		done a 1
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => -
	`,
	"of several queues only those with a backlog go along": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		wake a
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		land stored stored/c2 => settled 1 2 start 9 10
		depart        => want a2
	`,
	"beside the second the first waits for half of a claim, as long as for a trip under way": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		after 7ms
		land stored stored/c2 => settled 1 2 start 9 10
		done c 7
		done c 8
		done c 9
		depart        => - next 14ms
		done c 10
		depart        => out 7 8 9 10 want c4
		after 3ms
		land stored stored stored stored/c4 => settled 7 8 9 10 start 11 12 13 14
		done c 11
		depart        => - next 13ms
		after 3ms
		depart        => out 11 want c1
	`,
	"a stalled second trip holds up nothing of a stop": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		after 7ms
		land stored stored/c2 => settled 1 2 start 9 10
		done c 7
		depart        => - next 14ms
		close
		depart        => out 7
	`,
	"outcomes that may not be stored go again, and those of the other trip do not": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		land !unknown =>
		depart        => - next 100ms
		after 100ms
		depart        => out 1 2 want c2
		done c 7
		done c 8
		land stored stored/c2 => settled 1 2 start 9 10
		land second stored stored stored stored/c4 => settled 3 4 5 6 start 11 12 13 14
		depart        => out 7 8 want c2
	`,
	"what is in trouble on one lane does not go over two": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		done c 7
		done c 8
		land second !unknown =>
		after 1s
		depart        => - next never
		land stored stored/c2 => settled 1 2 start 9 10
		depart        => out 3 4 5 6 7 8 want c6
		done c 9
		done c 10
		land stored stored stored stored stored stored/c6 => settled 3 4 5 6 7 8 start 11 12 13 14 15 16
		depart        => out 9 10 want c2
	`,
	"after a trip that has not worked the connection is opened again, later each time": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		unopened
		depart        => - next never
		order         => -
		after 999ms
		order         => -
		after 1ms
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		land second !unknown =>
		depart        => - next 1.1s
		order         => close
		closed
		order         => -
		land stored stored/c2 => settled 1 2 start 9 10
		after 1999ms
		depart        => out 3 4 5 6 want c4
		land stored stored stored stored/c4 => settled 3 4 5 6 start 11 12 13 14
		done c 7
		done c 8
		depart        => out 7 8 want c2
		done c 9
		done c 10
		done c 11
		done c 12
		depart        => - next never
		order         => -
		after 1ms
		order         => open
		opened
		depart        => second out 9 10 11 12 want c4
		land second stored stored stored stored/c4 => settled 9 10 11 12 start 15 16 17 18
	`,
	"the connection is closed when no trip has gone over it for a while": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		after 4s
		depart        => second out 3 4 5 6 want c4
		after 6s
		order         => -
		land second stored stored stored stored/c4 => settled 3 4 5 6 start 9 10 11 12
		after 4999ms
		order         => -
		after 1ms
		order         => close
		done c 7
		done c 8
		done c 9
		done c 10
		depart        => - next never
		order         => -
		closed
		depart        => - next never
		order         => open
	`,
	"a claim that fails is made again, though one beside it has come back short since": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		land second stored stored stored stored/c0 => settled 3 4 5 6
		land stored stored/!claim => settled 1 2
		after 100ms
		depart        => want c6
	`,
	"so is one that was full": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		land second stored stored stored stored/c0 => settled 3 4 5 6
		land stored stored/c2 => settled 1 2 start 9 10
		depart        => want c4
	`,
	"a wake-up outlives the claims that were sent before it, on both lanes": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		depart        => - next never
		order         => open
		opened
		depart        => second out 3 4 5 6 want c4
		wake c
		land stored stored/c0 => settled 1 2
		land second stored stored stored stored/c0 => settled 3 4 5 6
		depart        => want c6
		land c0       =>
		depart        => - next never
	`,
	"a stop and a hold send nothing beside": `
		wake c
		depart        => want c8
		land c8       => start 1 2 3 4 5 6 7 8
		done c 1
		done c 2
		depart        => out 1 2 want c2
		done c 3
		done c 4
		done c 5
		done c 6
		hold          => - next never
		order         => -
		depart        => - next never
		order         => open
		opened
		close
		depart        => - next never
		land stored stored/c2 => settled 1 2 back 9 10
		depart        => out 3 4 5 6
	`,
}

func TestLanes(t *testing.T) { runDeskScripts(t, laneScripts) }

// How many others are a crowd, and the loop learns of it.
func TestManyBesideAreACrowd(t *testing.T) {
	d := New(Config{})
	l := &loop{Dispatcher: d, desk: newDesk(nil), leases: newLeases(0)}
	for _, n := range []int{0, mostBeside - 1, mostBeside, mostBeside, 1} {
		d.Beside(n)
		poked := len(d.poke) > 0
		if l.hear(); l.desk.crowded != (n >= mostBeside) {
			t.Errorf("%d others: crowded %v", n, l.desk.crowded)
		}
		d.Beside(n)
		if !poked && len(d.poke) > 0 {
			t.Errorf("%d others: the loop is woken by what it knows", n)
		}
		for len(d.poke) > 0 {
			<-d.poke
		}
	}
}
