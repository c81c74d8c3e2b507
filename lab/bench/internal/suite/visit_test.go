package suite

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A service that does not answer for a while is asked on: whoever waits for an
// answer before the next request sees one that is late where there are many.
// Here the first ten get no answer before the tenth has come.
func TestVisitorsDoNotWait(t *testing.T) {
	var asked atomic.Int64
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 10 {
			close(over)
		}
		<-over
	}))
	defer server.Close()
	v := newVisitors(server.URL, 100)
	defer v.close()
	l, err := v.call(t.Context(), 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if l.TotalCount() != 20 {
		t.Errorf("%d requests; want 20", l.TotalCount())
	}
	if most := float64(l.Max()) / 1e6; most < 89 { // the first, with what a histogram rounds
		t.Errorf("none has taken more than %.3g ms; want the 90 ms that the first has waited for the tenth", most)
	}
}

func TestVisitorsMindTheStatus(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	v := newVisitors(server.URL, 100)
	defer v.close()
	if _, err := v.call(t.Context(), 20*time.Millisecond); err == nil {
		t.Error("404 counts as an answer")
	}
}
