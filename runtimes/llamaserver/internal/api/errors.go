package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// StatusError is an answer whose status is not 200.
type StatusError struct {
	path    string
	Status  int
	message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("llama-server %s: status %d: %s", e.path, e.Status, e.message)
}

// errorMessage is the message of an error, or the beginning of what the server sent instead of one.
func errorMessage(b []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(b[:min(len(b), 200)])
}

// Unsupported reports whether the server has no such endpoint, or none for what it runs. Slots with media answer 501.
func Unsupported(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Status == http.StatusNotImplemented || s.Status == http.StatusNotFound)
}

// Refuses reports whether the server will give the same answer again. It knows no such model, or does not take the API key.
func Refuses(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Status >= 400 && s.Status < 500
}

// RefusesBody reports whether the server has read a request and rejects it. If its template rejects a chat, it says 500.
func RefusesBody(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Status == http.StatusBadRequest || s.Status == http.StatusInternalServerError)
}

// Loading reports whether the server said that it is loading its model.
func Loading(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Status == http.StatusServiceUnavailable
}

// BrokeOff reports whether the server could not be reached, ended the connection, or sent something that is not HTTP. For the last, net/http has only a
// text.
func BrokeOff(err error) bool {
	var op net.Error
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "transport connection broken")
}
