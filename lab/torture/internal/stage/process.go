package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// rebirth is the pause between the end of a process and its next life, unless
// a fault has chosen another.
const rebirth = 300 * time.Millisecond

// Process is one who takes part, through all its lives: a process that ends
// without having been told to is started again.
type Process struct {
	stage *Stage
	base  string // its name without a life
	role  script.Role
	net   *Net

	mu         sync.Mutex
	assignment script.Assignment
	program    string
	env        []string
	life       int
	child      *child // the current life; nil: between two, or ended
	last       *child
	wanted     bool          // there shall be a life
	over       bool          // the stage is closed: there shall be none for ever
	rest       time.Duration // before the next one
	paused     bool
	cuts       []string      // faults of its network, by how
	changed    chan struct{} // closed, and made anew, at every change
}

var errClosed = errors.New("the stage is closed")

// Start starts a process. What the assignment does not say, its directory and
// its way to the database, is filled in.
func (s *Stage) Start(a script.Assignment) (*Process, error) {
	base, life := a.Name, 1
	if i := strings.LastIndexByte(a.Name, '.'); i >= 0 {
		n, err := strconv.Atoi(a.Name[i+1:])
		if err != nil {
			return nil, fmt.Errorf("start %q: no life in its name", a.Name)
		}
		base, life = a.Name[:i], n
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	n, err := s.network(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Name, err)
	}
	if a.Dir == "" {
		a.Dir = s.options.Dir
	}
	if a.DSN == "" {
		password, err := s.role(ctx, base, a.Role)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", a.Name, err)
		}
		a.DSN = n.dsn(base, password, s.options.Standby)
	}
	p := &Process{
		stage: s, base: base, role: a.Role, net: n,
		assignment: a, program: s.options.Crew, life: life - 1,
		wanted: true, changed: make(chan struct{}),
	}
	if err := p.begin(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errClosed, p.end())
	}
	s.processes = append(s.processes, p)
	s.tasks.Go(p.supervise)
	return p, nil
}

// Workers are the workers, in the order in which they were started, those that
// are between two lives too.
func (s *Stage) Workers() []*Process { return s.Processes(script.Worker) }

// Processes are those of one role; "": all.
func (s *Stage) Processes(role script.Role) []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []*Process
	for _, p := range s.processes {
		if role == "" || p.role == role {
			some = append(some, p)
		}
	}
	return some
}

// begin starts the next life, unless it was ended while this one waited for its
// time.
func (p *Process) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return nil
	}
	p.life++
	a := p.assignment
	a.Name = p.base + "." + strconv.Itoa(p.life)
	a.Seed += uint64(p.life-1) * 0x9e3779b97f4a7c15
	c, err := spawn(p.program, p.env, a)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Name, err)
	}
	p.child, p.last, p.paused, p.rest = c, c, false, rebirth
	for _, how := range p.cuts {
		p.stage.note(history.Event{Op: history.Cut, Target: a.Name, Note: how})
	}
	p.change()
	return nil
}

// change tells those who wait for one. The mutex is held.
func (p *Process) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// supervise sees each life end, and begins the next.
func (p *Process) supervise() {
	for {
		p.mu.Lock()
		c, wanted, rest, changed := p.child, p.wanted, p.rest, p.changed
		p.mu.Unlock()
		switch {
		case c != nil:
			<-c.done // Close ends it
			p.mu.Lock()
			p.child = nil
			p.change()
			p.mu.Unlock()
			p.stage.note(history.Event{Op: history.Exit, Target: c.name, Error: c.how()})
			p.stage.Logf("%s has ended: %s", c.name, cmp.Or(c.how(), "by itself"))
			select {
			case <-p.stage.closing:
				return
			default:
			}
		case !wanted:
			select {
			case <-changed:
			case <-p.stage.closing:
				return
			}
		default:
			select {
			case <-time.After(rest):
			case <-p.stage.closing:
				return
			}
			if err := p.begin(); err != nil {
				p.stage.Logf("%v", err) // and again
			}
		}
	}
}

// Base is its name without a life, and that of its role in the database.
func (p *Process) Base() string { return p.base }

// Name is the name of its current life, or of its last one.
func (p *Process) Name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.name
}

// PID is the process id of its current life; 0: it has none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lives() {
		return 0
	}
	return p.child.pid
}

// lives says whether it has a life now. The mutex is held.
func (p *Process) lives() bool {
	if p.child == nil {
		return false
	}
	select {
	case <-p.child.done:
		return false
	default:
		return true
	}
}

// Net is its network.
func (p *Process) Net() *Net { return p.net }

// Assignment is what its current life was told, but for its name.
func (p *Process) Assignment() script.Assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.assignment
}

// ErrDead means that a process has no life just now.
var ErrDead = errors.New("it does not live")

// signal sends one to the current life and writes that into the history.
func (p *Process) signal(sig syscall.Signal, op history.Op) error {
	if !p.lives() {
		return fmt.Errorf("%s %s: %w", op, p.base, ErrDead)
	}
	if err := p.child.signal(sig); err != nil {
		return fmt.Errorf("%s %s: %w", op, p.child.name, err)
	}
	p.stage.note(history.Event{Op: op, Target: p.child.name})
	return nil
}

// Kill ends the current life by SIGKILL, frozen or not. The next one begins
// after a moment.
func (p *Process) Kill() error { return p.KillFor(rebirth) }

// KillFor is Kill with another pause before the next life, in which others may
// take over.
func (p *Process) KillFor(rest time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = rest
	return p.signal(syscall.SIGKILL, history.Kill)
}

// Pause freezes the current life by SIGSTOP.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.signal(syscall.SIGSTOP, history.Pause)
	p.paused = p.paused || err == nil
	return err
}

// Resume lets it go on, if it is frozen.
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused || !p.lives() {
		return nil
	}
	p.paused = false
	return p.signal(syscall.SIGCONT, history.Resume)
}

// Term ends it by SIGTERM, for good: there is no further life until Again. Then
// it looks for what was left behind. It is an error if it does not end within
// the timeout; it is killed then.
func (p *Process) Term(timeout time.Duration) error {
	p.mu.Lock()
	p.wanted = false
	c, err := p.child, p.signal(syscall.SIGTERM, history.Term)
	p.change()
	p.mu.Unlock()
	if errors.Is(err, ErrDead) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return p.clean(c)
	case <-time.After(timeout):
	}
	p.mu.Lock()
	err = p.signal(syscall.SIGKILL, history.Kill)
	p.mu.Unlock()
	<-c.done
	if errors.Is(err, ErrDead) {
		err = nil // just now
	}
	return errors.Join(err, fmt.Errorf("%s did not end within %s of SIGTERM", c.name, timeout))
}

// Next says what is to be different in its next lives: the program ("": that of
// all others), what is added to its environment, and its ways to the database.
type Next struct {
	Program        string
	Env            []string
	DSN, ListenDSN string // "": its own network
}

// Again begins a new life after Term.
func (p *Process) Again(next Next) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errClosed
	}
	if p.wanted {
		return fmt.Errorf("%s was not ended", p.base)
	}
	p.program, p.env = next.Program, next.Env
	if p.program == "" {
		p.program = p.stage.options.Crew
	}
	p.assignment.DSN, p.assignment.ListenDSN = next.DSN, next.ListenDSN
	if next.DSN == "" {
		p.stage.mu.Lock()
		password := p.stage.passwords[p.base]
		p.stage.mu.Unlock()
		p.assignment.DSN = p.net.dsn(p.base, password, p.stage.options.Standby)
	}
	p.wanted, p.rest = true, 0
	p.change()
	return nil
}

// Cut writes that a fault of its network begins, for this life and those that
// begin meanwhile: history.Late, Silent or Broken. Mend is the other end. They
// may overlap.
func (p *Process) Cut(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, how)
	p.stage.note(history.Event{Op: history.Cut, Target: p.last.name, Note: how})
}

// Mend ends Cut. The network works again when all of them have ended.
func (p *Process) Mend(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.cuts, how); i >= 0 {
		p.cuts = slices.Delete(p.cuts, i, i+1)
	}
	if len(p.cuts) == 0 {
		p.stage.note(history.Event{Op: history.Mend, Target: p.last.name})
	}
}

// Await returns when it has a life, which may have begun just now.
func (p *Process) Await(ctx context.Context) error {
	for {
		p.mu.Lock()
		lives, changed := p.lives(), p.changed
		p.mu.Unlock()
		if lives {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for a life of %s: %w", p.base, context.Cause(ctx))
		}
	}
}

// end kills it for good, with no word in the history but that of its exit.
func (p *Process) end() error {
	p.mu.Lock()
	p.wanted, p.over = false, true
	c := p.child
	p.change()
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	err := c.signal(syscall.SIGKILL)
	<-c.done
	return err
}
