package report

// about says what each invariant means to somebody who has never seen the
// project. The first is invariant 1.
var about = [invariants]string{
	"A job whose enqueueing was confirmed has ended (done, dead or cancelled) or is still in the queue. If the answer was lost, there is one such job or none.",
	"No job runs whose transaction was rolled back.",
	"Each job was enqueued together with a row of business data, in one transaction: whoever sees one of them sees the other.",
	"Each claim of a job has a number, its fence, which is larger than those of all its earlier claims, also after hand-backs, pauses, manual retries and a failover.",
	"Who has lost a job changes nothing with what he still writes about it, and is told so. Each claim has at most one outcome.",
	"A job that has ended does not change any more, unless an operator retries it.",
	"The attempts that are counted are the claims, less the refunds that are documented; no job is started more often than it may be.",
	"One job in two handlers at once is possible only if the first one's lease was over by the database's clock, or its process was stopped, cut off or dead.",
	"Nothing starts before its time, and no retry before its pause is over.",
	"When a process dies, its jobs run again within the time that the documentation names.",
	"A job that is due and finds somebody free starts within moments, and within one poll interval while every notification is dropped.",
	"No process takes more jobs than it asked for, and none runs more at once than it has slots.",
	"What was confirmed equals what is live, ended or deleted; no job stays in running for ever.",
	"A process that was told to stop, and did, leaves no handler, connection, lease or open transaction.",
	"A job whose completion was confirmed does not run again, also after the server has crashed.",
	"All that happened to a job can be put in one order that a small model of a queue allows.",
	"Where to look for the end of a running job's lease is written down at each instant, so that no job is forgotten.",
}

// About is the sentence for an invariant.
func About(invariant int) string {
	if invariant < 1 || invariant > invariants {
		return ""
	}
	return about[invariant-1]
}

// targets says what must hold after a fault.
const targets = "From 5 s after a fault's end (after a crash restart or failover: after the server accepts connections again), " +
	"over 10 s or until the next fault, at least 0.99 of the jobs that are offered are completed; and the backlog is back where it was within 10 s."

// whose says who the processes are that make stale writes.
var whose = map[string]string{
	byFrozen: "workers that were frozen past their lease and woke up",
	byZombie: "a client that remembers every claim that it ever saw, and replays it in every verb",
	byOthers: "workers that lost their jobs in another way: cut off, or by an operator",
}

// word is one that a reader needs.
type word struct{ Word, Means string }

var glossary = []word{
	{"job", "a row in a table of PostgreSQL that says what is to be done; the queue is that table."},
	{"worker", "a process that takes jobs and runs them, each in a handler."},
	{"claim", "taking a job: the worker gets a lease and a fence."},
	{"lease", "how long the job belongs to its worker without news from it; it is extended while the handler runs."},
	{"fence", "the number of a claim. What a worker writes about a job must show the newest, or it changes nothing."},
	{"attempt", "one claim of a job that counts. After the last one a job that fails is dead."},
	{"bell", "a notification (NOTIFY) that wakes workers when a job is due. It is for speed alone: workers also look from time to time."},
	{"backlog", "jobs that are due and that nobody has taken."},
	{"fault", "something that the run does to processes, network or server while the load goes on."},
	{"control", "a run from which one guard was removed on purpose. It must fail, or the checker would be blind."},
}
