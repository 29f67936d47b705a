package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

const (
	// maxBody is the largest review that is read. An API server takes requests of up to 3 MiB, and an update has the object twice.
	maxBody = 8 << 20
	// maxObject is the largest object that is decoded. etcd takes no larger ones.
	maxObject = 3 << 19
	// bodies and objects bound what is read and what is decoded at the same time, by size: a decoded object with all that is made of it
	// can take a hundred times the size of its text, and a few large ones at once must not end the process that all small ones need.
	bodies  = maxBody
	objects = 2 << 20
)

// badBody is a body that is not even decoded.
type badBody struct {
	code    int
	outcome Outcome
	err     error
}

func (b *badBody) Error() string { return b.err.Error() }

// receive reads the body. The memory is reserved until release is called. With an error comes as much of the body as there is.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (body []byte, release func(), bad *badBody) {
	size := int64(maxBody)
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	if err := h.bodies.Acquire(r.Context(), size); err != nil {
		err = fmt.Errorf("too many large reviews at the same time: %w", err)
		return nil, func() {}, &badBody{http.StatusServiceUnavailable, Overwhelmed, err}
	}
	release = func() { h.bodies.Release(size) }
	body = make([]byte, 0, min(size, 64<<10)+1)
	body, err := readAll(http.MaxBytesReader(w, r.Body, maxBody), body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return body, release, &badBody{http.StatusRequestEntityTooLarge, Unreadable, fmt.Errorf("the review is larger than %d MiB", maxBody>>20)}
	case err != nil:
		return body, release, &badBody{http.StatusBadRequest, Unreadable, fmt.Errorf("the review ended early: %w", err)}
	}
	return body, release, nil
}

// readAll is io.ReadAll into memory that is there already, and keeps what came before an error.
func readAll(from io.Reader, into []byte) ([]byte, error) {
	for {
		if len(into) == cap(into) {
			into = append(into, 0)[:len(into)]
		}
		n, err := from.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		if errors.Is(err, io.EOF) {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}

func refusal(code int, message string) response {
	reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusServiceUnavailable: "ServiceUnavailable",
		http.StatusInternalServerError: "InternalError", http.StatusBadRequest: "BadRequest",
		http.StatusRequestEntityTooLarge: "RequestEntityTooLarge"}[code]
	return response{Status: &status{Status: "Failure", Message: "routefence: " + message, Reason: reason, Code: code}}
}

// answer writes a response. The HTTP status is 200 wherever the API server can tell what it belongs to: of any other status it reports
// the number alone, and not what is wrong.
func (h *Handler) answer(w http.ResponseWriter, e envelope, answer response, outcome Outcome) {
	h.observe(outcome)
	answer.UID = e.Request.UID
	text, err := json.Marshal(envelope{APIVersion: e.APIVersion, Kind: "AdmissionReview", Response: &answer})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if answer.UID == "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write(text) // a caller that is gone asks again
}
