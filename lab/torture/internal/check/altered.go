package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// altered: a job is stored, and comes to each of its handlers, as its producer
// has asked for it.
func altered(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, t := range ix.enqueues[j.token] {
			if t.phase() == history.Failed {
				continue
			}
			f.part("jobs compared with what was asked for", 1)
			first := append(j.changes[:len(j.changes):len(j.changes)], j.lost...)[0]
			if first.what == inserted && t.could(first.at) {
				if wrong := differs(t.ref, j.queue, j.kind, first.line.Max, 0); wrong != "" {
					f.violated("a job is stored with another "+wrong+" than was asked for", steps(ix.call(t.call), ix.change(first))...)
				}
			}
			for _, cl := range j.claims {
				for _, s := range cl.starts {
					if wrong := differs(t.ref, s.Queue, s.Kind, 0, s.Payload); wrong != "" {
						f.violated("a handler got another "+wrong+" than was enqueued", steps(ix.call(t.call), ix.event(s, j.id))...)
					}
				}
			}
		}
	}
}

// differs names what is not as it was asked for; what one of the two does not
// tell is not compared.
func differs(asked history.Ref, queue, kind string, most int, payload uint32) string {
	switch {
	case asked.Queue != "" && queue != "" && queue != asked.Queue:
		return "queue"
	case asked.Kind != "" && kind != "" && kind != asked.Kind:
		return "kind"
	case asked.Most != 0 && most != 0 && most != asked.Most:
		return "number of attempts"
	case asked.Payload != 0 && payload != 0 && payload != asked.Payload:
		return "payload"
	}
	return ""
}
