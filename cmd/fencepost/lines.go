package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost-go/fencepost"
)

// maxLine leaves room for a payload of 1 MiB with white space around it.
const maxLine = 2 << 20

// line is a job as a line of JSON describes it.
type line struct {
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload"`
	Queue       *string         `json:"queue"`
	Priority    *int            `json:"priority"`
	RunAt       *time.Time      `json:"run_at"`
	Delay       *string         `json:"delay"`
	MaxAttempts *int            `json:"max_attempts"`
}

// lineReader reads jobs from JSON lines.
type lineReader struct {
	scanner  *bufio.Scanner
	defaults fencepost.NewJob
	number   int // of the line read last
}

func newLineReader(r io.Reader, defaults fencepost.NewJob) *lineReader {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	return &lineReader{scanner: scanner, defaults: defaults}
}

// next returns up to n jobs, none at the end of the input. Empty lines are
// passed over.
func (r *lineReader) next(n int) ([]fencepost.NewJob, error) {
	var jobs []fencepost.NewJob
	for len(jobs) < n && r.scanner.Scan() {
		r.number++
		text := bytes.TrimSpace(r.scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		job, err := r.parse(text)
		if err == nil {
			err = job.Validate()
		}
		if err != nil {
			return nil, usage("line %d: %w", r.number, err)
		}
		jobs = append(jobs, job)
	}
	switch err := r.scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, usage("line %d: longer than %d bytes", r.number+1, maxLine)
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return jobs, nil
}

func (r *lineReader) parse(text []byte) (fencepost.NewJob, error) {
	job := r.defaults
	if !utf8.Valid(text) {
		return job, errors.New("invalid UTF-8") // which encoding/json would replace
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var l line
	if err := decoder.Decode(&l); err != nil {
		var wrong *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrong) && wrong.Field == "":
			return job, fmt.Errorf("is a JSON %s; must be an object", wrong.Value)
		case errors.As(err, &wrong):
			return job, fmt.Errorf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
		}
		return job, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return job, errors.New("something after the JSON object")
	}
	job.Kind = l.Kind
	if l.Payload != nil {
		job.Payload = l.Payload
	}
	if l.Queue != nil {
		if job.Queue = *l.Queue; job.Queue == "" {
			return job, errors.New("queue is empty")
		}
	}
	if l.Priority != nil {
		job.Priority = *l.Priority
	}
	if l.MaxAttempts != nil {
		if job.MaxAttempts = *l.MaxAttempts; job.MaxAttempts == 0 {
			return job, errors.New("max_attempts is 0; must be at least 1")
		}
	}
	if l.RunAt != nil || l.Delay != nil { // either replaces both defaults
		job.RunAt, job.Delay = time.Time{}, 0
	}
	if l.RunAt != nil {
		if job.RunAt = *l.RunAt; job.RunAt.IsZero() {
			return job, errors.New("run_at is in the year 1") // which the library takes for "not said"
		}
	}
	if l.Delay != nil {
		delay, err := time.ParseDuration(*l.Delay)
		if err != nil {
			return job, fmt.Errorf("delay is %q; must be like 90s or 1h30m", *l.Delay)
		}
		job.Delay = delay
	}
	return job, nil
}
