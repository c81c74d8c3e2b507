package suite

import "errors"

// join keeps what went wrong first in front.
func join(err error, more ...error) error { return errors.Join(append([]error{err}, more...)...) }
