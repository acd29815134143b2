package sandbox

import (
	"encoding/json"
	"net/http"
	"time"
)

func (v *Vendor) create(w http.ResponseWriter, r *http.Request) {
	o, err := readOrder(w, r)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	switch o.Behave {
	case FailBeforeCommit:
		fail(w, http.StatusInternalServerError, "internal", "nothing was committed")
	case Refuse:
		fail(w, http.StatusUnprocessableEntity, "refused", "this customer may not be invoiced")
	case RateLimit:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "rate_limited", "too many requests")
	case LoseAnswer:
		v.commit(o)
		// ErrAbortHandler is net/http's way to close the connection with no
		// answer, and it leaves no trace in the log.
		panic(http.ErrAbortHandler)
	case Slow:
		// A vendor at work does not notice that its caller went away.
		select {
		case <-v.after(time.Duration(o.DelayMS) * time.Millisecond):
			reply(w, http.StatusCreated, v.commit(o))
		case <-v.closed:
			panic(http.ErrAbortHandler)
		}
	default:
		reply(w, http.StatusCreated, v.commit(o))
	}
}

func (v *Vendor) commit(o order) Invoice {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count.Committed++
	return v.books.add(o, v.now())
}

func (v *Vendor) find(w http.ResponseWriter, r *http.Request) {
	marker := r.URL.Query().Get("marker")
	if marker == "" {
		fail(w, http.StatusBadRequest, "invalid_request", "name the marker to look for")
		return
	}
	v.mu.Lock()
	found := v.books.marked(marker)
	v.mu.Unlock()
	reply(w, http.StatusOK, map[string][]Invoice{"data": found})
}

func (v *Vendor) get(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	inv, ok := v.books.byID[r.PathValue("id")]
	v.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "not_found", "no such invoice")
		return
	}
	reply(w, http.StatusOK, inv)
}

func (v *Vendor) counted(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, v.Count())
}

type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]problem{"error": {Code: code, Message: message}})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that went away is no fault of the vendor's
}
