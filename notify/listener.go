package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgxlisten"

	"github.com/fencepost-go/fencepost/internal/peer"
)

// Config holds what a Listener needs. All funcs are required; those without a
// result are called one at a time from the goroutine of Run and must not
// block, since nothing is heard meanwhile.
type Config struct {
	// ConnConfig says how to connect. It is asked before every attempt, so
	// that a password may change; the Listener works on a copy. Connections
	// are for the Listener alone and never come from a pool.
	ConnConfig func(ctx context.Context) (*pgx.ConnConfig, error)
	// Channel is where bells ring: the name of the schema, at most 63 bytes.
	Channel string

	// Bell takes each bell that is heard on Channel.
	Bell func(Bell)
	// Recall takes each recall that is heard on Channel: the id of a worker that
	// is to look whether its jobs are still its own.
	Recall func(worker string)
	// Quiet takes each promise that is heard on Channel. nil: nobody cares.
	Quiet func(Quiet)
	// Drained takes the news that nothing is left in a queue. It comes after the
	// bells of all transactions that it sees. nil: nobody cares.
	Drained func(Drained)
	// Connected says that from now on bells are heard, if they are heard at
	// all: look now for what was missed. It is called on every connection.
	Connected func()
	// Hearing says whether bells are heard, first when that is known and then
	// at each change. cause says why not.
	Hearing func(hearing bool, cause error)

	// Proof is how long an own bell may take. Default 2 s.
	Proof time.Duration
	// Pooled is the least time between two attempts, once a pooler was found
	// to keep notifications to itself. Default 1 min.
	Pooled time.Duration
	// Logger gets one line when bells begin to be heard, and one for each
	// kind of trouble while they are not. nil: no output.
	Logger *slog.Logger
}

// Listener hears bells over one connection, which it keeps up. Its methods
// but Run may be called from any goroutine, at any time, and never block.
type Listener struct {
	config Config
	own    string
	proof  proof
	heard  atomic.Pointer[time.Time] // when the last own bell was; nil: none yet

	// Of the goroutine of Run alone.
	pace       *peer.Pace
	session    *session // nil: not connected
	subscribed int      // on how many channels the session listens
	state      state
	said       map[trouble]bool // what was logged since bells were last heard
}

// channels is on how many channels a listener listens: the schema's and its own.
const channels = 2

type state int

const (
	unknown state = iota
	hearing
	deaf
)

// trouble is what went wrong, as far as it deserves a line of its own.
type trouble string

const (
	cannotConnect trouble = "cannot connect"
	cannotListen  trouble = "LISTEN fails"
	lost          trouble = "connection lost"
	givenUp       trouble = "connection given up"
	noPrimary     trouble = "the server takes no writes"
	swallowed     trouble = "a pooler keeps notifications to itself"
)

var errSwallowed = errors.New("this connection goes through a pooler that does not carry LISTEN, such as PgBouncer in transaction mode: " +
	"jobs are looked for every second instead; to be woken at once, set Config.ListenConfig (fencepost work: --listen-url) to a direct connection to the server")

// New returns a Listener that hears nothing before Run.
func New(config Config) *Listener {
	if config.Proof == 0 {
		config.Proof = 2 * time.Second
	}
	if config.Pooled == 0 {
		config.Pooled = time.Minute
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Listener{
		config: config,
		own:    "fencepost:own:" + rand.Text(),
		proof:  proof{limit: config.Proof},
		pace:   peer.NewPace(),
	}
}

// Run listens until ctx is done, connecting again whenever that is needed.
// Then it closes its connection and returns nil. It must be called once.
func (l *Listener) Run(ctx context.Context) error {
	// pgxlisten pauses after an error, the same time after each; ours is the
	// pace in connect.
	listener := pgxlisten.Listener{Connect: l.connect, LogError: l.failed, ReconnectDelay: -1}
	listener.Handle(l.config.Channel, handler{l, l.bell})
	listener.Handle(l.own, handler{l, l.ownBell})
	err := listener.Listen(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Own returns the channel of this Listener alone, on which the process rings
// for itself. No two Listeners have the same.
func (l *Listener) Own() string { return l.own }

// Heard returns when a bell that the process rang for itself was last heard;
// zero: never.
func (l *Listener) Heard() time.Time {
	if at := l.heard.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Expect returns the payload for a bell on the channel Own. Call it just
// before ringing.
func (l *Listener) Expect() (token string) { return l.proof.expect() }

// Await says that the bell was rung: its transaction has committed. If it is
// not heard within Config.Proof by the connection that listened at the time
// of Expect, that connection is closed and another one made. A bell that was
// perhaps not rung must not be awaited.
func (l *Listener) Await(token string) { l.proof.await(token) }

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	if err := l.pace.Wait(ctx); err != nil {
		return nil, err
	}
	s, err := connect(ctx, l.config.ConnConfig)
	if err != nil {
		return nil, err
	}
	l.session, l.subscribed = s, 0
	return s.conn, nil
}

// failed takes the error that ended a session or an attempt at one, after
// pgxlisten is done with the connection.
func (l *Listener) failed(ctx context.Context, err error) {
	if l.session != nil && !l.session.conn.IsClosed() {
		return // no end: a notification for a channel that some hook of the config listens on
	}
	kind := cannotConnect
	if l.session != nil {
		l.proof.over()
		cause, pooled := l.session.end(), l.session.server.Pooled
		l.session = nil
		switch {
		case cause != nil && pooled && l.subscribed == channels:
			kind, err = swallowed, errSwallowed
			// Each try listens on a server session that is somebody else's too.
			l.pace.Hold(l.config.Pooled)
		case cause != nil:
			kind, err = givenUp, cause
		case l.subscribed < channels:
			kind = cannotListen
		default:
			kind = lost
		}
	} else if peer.IsReadOnly(err) {
		kind = noPrimary
	}
	if ctx.Err() != nil {
		return // that is why
	}
	if l.state != deaf {
		l.state, l.said = deaf, make(map[trouble]bool)
		l.config.Hearing(false, err)
	}
	if !l.said[kind] {
		l.said[kind] = true
		l.config.Logger.Warn("notifications are not heard; polling", "trouble", string(kind), "error", err)
	}
}

// listening takes the news that LISTEN has committed on one more channel.
func (l *Listener) listening() {
	if l.subscribed++; l.subscribed == channels {
		l.session.setup.Stop()
		l.proof.listening(l.session.giveUp)
		l.config.Connected()
	}
}

func (l *Listener) bell(payload string) {
	if worker, ok := strings.CutPrefix(payload, recall); ok {
		l.config.Recall(worker)
		return
	}
	if rest, ok := strings.CutPrefix(payload, quiet); ok {
		promise, err := parseQuiet(rest)
		switch {
		case err != nil:
			l.config.Logger.Debug("a notification that is none of ours", "error", err)
		case l.config.Quiet != nil:
			l.config.Quiet(promise)
		}
		return
	}
	if rest, ok := strings.CutPrefix(payload, drained); ok {
		news, err := parseDrained(rest)
		switch {
		case err != nil:
			l.config.Logger.Debug("a notification that is none of ours", "error", err)
		case l.config.Drained != nil:
			l.config.Drained(news)
		}
		return
	}
	bell, err := ParseBell(payload)
	if err != nil {
		l.config.Logger.Debug("a bell that is none of ours", "error", err)
		return
	}
	l.config.Bell(bell)
}

func (l *Listener) ownBell(token string) {
	if !l.proof.heard(token) {
		return
	}
	l.heard.Store(new(time.Now()))
	l.pace.Lived()
	if l.state != hearing {
		l.state = hearing
		l.config.Logger.Info("notifications are heard")
		l.config.Hearing(true, nil)
	}
}

// handler is what pgxlisten calls for one channel.
type handler struct {
	listener *Listener
	heard    func(payload string)
}

func (h handler) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	h.heard(n.Payload)
	return nil
}

// HandleBacklog comes after the LISTEN of each channel, in any order of the
// channels, and not only after the last one.
func (h handler) HandleBacklog(context.Context, string, *pgx.Conn) error {
	h.listener.listening()
	return nil
}
