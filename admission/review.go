package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The versions of a review that are answered. What is used of them is the same in both.
const (
	version1     = "admission.k8s.io/v1"
	version1Beta = "admission.k8s.io/v1beta1"
)

// envelope is an AdmissionReview, as far as it is needed. k8s.io/api has the whole of it, and a hundred other types besides.
type envelope struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID         string `json:"uid"`
	Kind        kind   `json:"kind"`
	SubResource string `json:"subResource"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Operation   string `json:"operation"`
	// Object is decoded only if something is to be done with it.
	Object json.RawMessage `json:"object"`
}

type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
	// Patch is base64 in JSON, as all bytes are.
	Patch     []byte   `json:"patch,omitempty"`
	PatchType string   `json:"patchType,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

type status struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"`
	Code    int    `json:"code"`
}

// decode reads a review. Of one that cannot be read it returns what the answer needs, as far as that is there.
func decode(body []byte) (envelope, error) {
	var e envelope
	err := json.Unmarshal(body, &e)
	switch {
	case err != nil:
		err = fmt.Errorf("the body is no AdmissionReview: %w", err)
	case e.Kind != "AdmissionReview":
		err = fmt.Errorf("kind %q is no AdmissionReview", e.Kind)
	case e.APIVersion != version1 && e.APIVersion != version1Beta:
		err = fmt.Errorf("apiVersion %q: only %s and %s are understood; set admissionReviewVersions: [v1]", e.APIVersion, version1, version1Beta)
	case e.Request == nil:
		err = errors.New("the AdmissionReview has no request")
	case e.Request.UID == "":
		err = errors.New("the request of the AdmissionReview has no uid")
	}
	if err == nil {
		return e, nil
	}
	if e.Request == nil || e.Request.UID == "" {
		e.Request = &request{UID: salvage(body)}
	}
	if e.APIVersion != version1Beta {
		e.APIVersion = version1
	}
	return e, err
}

// salvage returns the UID of a review that is cut short or broken: an API server takes no answer without it, and says "invalid
// response" then instead of what is wrong.
func salvage(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if !enter(d, "request") {
		return ""
	}
	if !enter(d, "uid") {
		return ""
	}
	t, err := d.Token()
	uid, ok := t.(string)
	if err != nil || !ok {
		return ""
	}
	return uid
}

// enter reads the beginning of an object up to the value of a field.
func enter(d *json.Decoder, field string) bool {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		if name == field {
			return true
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}
