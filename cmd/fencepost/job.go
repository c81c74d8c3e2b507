package main

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/fencepost-go/fencepost"
)

// jobJSON is a job as --json prints it: the same keys for every job, null for
// what it does not have. Its payload is as stored, every digit kept.
type jobJSON struct {
	ID          string          `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Status      string          `json:"status"`
	Priority    int             `json:"priority"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Snoozes     int             `json:"snoozes"`
	RunAt       time.Time       `json:"run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	FinishedAt  *time.Time      `json:"finished_at"`
	LeaseUntil  *time.Time      `json:"lease_until"`
	Fence       string          `json:"fence"`
	WorkerID    *string         `json:"worker_id"`
	LastError   *string         `json:"last_error"`
	Payload     json.RawMessage `json:"payload"`
	Progress    json.RawMessage `json:"progress"`
}

func toJSON(j fencepost.Info) jobJSON {
	return jobJSON{
		ID: formatID(j.ID), Queue: j.Queue, Kind: j.Kind, Status: j.Status, Priority: j.Priority,
		Attempts: j.Attempts, MaxAttempts: j.MaxAttempts, Snoozes: j.Snoozes,
		RunAt: j.RunAt.UTC(), CreatedAt: j.CreatedAt.UTC(),
		FinishedAt: timeOrNull(j.FinishedAt), LeaseUntil: timeOrNull(j.LeaseUntil),
		Fence: formatID(j.Fence), WorkerID: textOrNull(j.WorkerID), LastError: textOrNull(j.LastError),
		Payload: j.Payload, Progress: j.Progress,
	}
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usage("%q is not the id of a job", text)
	}
	return id, nil
}

// parseIDs drops those that are there already.
func parseIDs(texts []string) ([]int64, error) {
	var ids []int64
	seen := make(map[int64]bool)
	for _, text := range texts {
		id, err := parseID(text)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func formatID(id int64) string { return strconv.FormatInt(id, 10) }

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
