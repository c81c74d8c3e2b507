package dispatcher

import "log/slog"

// trouble logs once when something begins to fail and once when it is over.
type trouble struct {
	logger    *slog.Logger
	bad, good string
	err       error
}

func (t *trouble) note(err error) {
	switch {
	case err != nil && t.err == nil:
		t.logger.Error(t.bad, "error", err)
	case err == nil && t.err != nil:
		t.logger.Info(t.good)
	}
	t.err = err
}
