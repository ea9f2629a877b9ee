package loadgen

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

const maxErrorLen = 256

// errorText finds the message and the numeric code in an error body: the OpenAI form, its flat
// form, FastAPI's detail (of a list of faults only their kinds: the rest quotes the request), else
// the text itself.
func errorText(body []byte) (text string, code int) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &e) != nil {
		return oneLine(string(body)), 0
	}
	_ = json.Unmarshal(e.Code, &code) // a code that is a word stays 0
	var inner struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
	}
	var faults []struct {
		Type string `json:"type"`
	}
	switch {
	case json.Unmarshal(e.Error, &text) == nil && text != "":
	case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
		text = inner.Message
		_ = json.Unmarshal(inner.Code, &code)
	case e.Message != "":
		text = e.Message
	case json.Unmarshal(e.Detail, &text) == nil && text != "":
	case json.Unmarshal(e.Detail, &faults) == nil && len(faults) > 0:
		text = "request refused: " + faults[0].Type
	default:
		text = "no message in the error"
	}
	return oneLine(text), code
}

// oneLine shortens a text to one printable line.
func oneLine(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > maxErrorLen {
		s = strings.ToValidUTF8(s[:maxErrorLen], "") + "…"
	}
	if s == "" {
		return "no message"
	}
	return s
}

var (
	oomText = regexp.MustCompile(`(?i)out[ -]?of[ -]?memory|\bOOM\b`)
	// The engine itself must say that a part of it is gone; a connection that breaks is not enough.
	lostText = regexp.MustCompile(`(?i)\b(worker|stage|engine|process|replica|rank)\w*\b[^.]{0,48}\b(died|dead|crashed|lost|killed|exited|terminated)\b|EngineDead`)
)

// lacksText and modalityText together are a server's statement that its model lacks a modality. A
// refused file format or voice is not: that is a request that could be mended.
var (
	lacksText    = regexp.MustCompile(`(?i)\b(not|n't|no)\b[^.]{0,24}\bsupport|\bunsupported\b|\bonly supports? text|\bAt most 0\b`)
	modalityText = regexp.MustCompile(`(?i)image|video|audio|speech|vision|multi-?modal|modalit|transcri|translat`)
	mendableText = regexp.MustCompile(`(?i)format|codec|extension|mime|content.type|sample.?rate|\bvoice\b|language|parameter`)
)

func lacksModality(text string) bool {
	return lacksText.MatchString(text) && modalityText.MatchString(text) && !mendableText.MatchString(text)
}

// stateOf maps what the server said to a terminal state. A refused request (other 4xx) is this
// program's fault; any other failure that the server states is an output that is not valid.
func (r *reply) stateOf(status, code int, text string) string {
	if status == 0 {
		status = code
	}
	switch {
	case oomText.MatchString(text):
		return run.StateOOM
	case lostText.MatchString(text):
		return run.StateWorkerLost
	case status == 429 || status == 503:
		return run.StateRejected
	case (status/100 == 4 || status == 501) && len(r.cfg.uses()) > 0 && lacksModality(text):
		return run.StateNotApplicable
	case r.req.Status/100 == 4:
		return run.StateHarnessError
	}
	return run.StateInvalidOutput
}
