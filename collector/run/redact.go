package run

import (
	"fmt"
	"regexp"
	"strings"
)

const redacted = "***"

var (
	// name separator value, as in TOKEN=x, "api_key": "x", password: x
	pairPattern = regexp.MustCompile(`([A-Za-z0-9_.\-]+)(\\?["']?\s*[:=]\s*\\?["']?)([^"'\\\s,;&}]+)`)
	// Values that are secrets wherever they stand.
	valuePattern = regexp.MustCompile(`\b(?:hf_|sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|nvapi-|gsk_|r8_|pypi-)[A-Za-z0-9_\-]{8,}` +
		`|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_\-]{20,}` +
		`|\beyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*`)
	schemePattern = regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/=._~\-]{6,}`)
	userPattern   = regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`)
	keyPattern    = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*`)
	numberPattern = regexp.MustCompile(`^(?:[0-9]{1,7}|[0-9]*\.[0-9]+|true|false|True|False|None|null)$`)
)

// Redact returns a copy of a command line (or of NAME=VALUE pairs) without secrets: values of flags
// and variables whose names speak of one, and text that looks like a known kind of token. What it
// cannot recognise stays, so a run is private (0700) all the same.
func Redact(args []string) []string {
	if args == nil {
		return nil
	}
	out := make([]string, len(args))
	hide := false // the previous argument was a flag whose value is a secret
	for k, arg := range args {
		name, value, pair := strings.Cut(arg, "=")
		switch {
		case hide && !strings.HasPrefix(arg, "--") && !numberPattern.MatchString(arg):
			out[k], hide = redacted, false
		case pair && plainName(name) && secretValue(name, value):
			out[k], hide = name+"="+redacted, false
		default:
			out[k] = redactText(arg)
			hide = strings.HasPrefix(arg, "-") && !pair && plainName(arg) && secretName(arg)
		}
	}
	return out
}

// redactText redacts inside one argument: shell scripts, JSON, headers, URLs.
func redactText(s string) string {
	s = keyPattern.ReplaceAllString(s, redacted)
	s = schemePattern.ReplaceAllString(s, "${1}"+redacted)
	s = userPattern.ReplaceAllString(s, "${1}"+redacted+"@")
	s = pairPattern.ReplaceAllStringFunc(s, func(m string) string {
		p := pairPattern.FindStringSubmatch(m)
		// "Authorization: Bearer x" has been dealt with above.
		if !secretValue(p[1], p[3]) || strings.EqualFold(p[3], "bearer") || strings.EqualFold(p[3], "basic") {
			return m
		}
		return p[1] + p[2] + redacted
	})
	return valuePattern.ReplaceAllString(s, redacted)
}

// plainName tells a flag or variable name from free text.
func plainName(s string) bool {
	s = strings.TrimLeft(s, "-")
	for k := range len(s) {
		b := s[k]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '_' && b != '-' && b != '.' {
			return false
		}
	}
	return s != ""
}

// secretValue judges a pair. Numbers stay for names such as max_token, whose value is a setting.
func secretValue(name, value string) bool {
	if value == "" || !secretName(name) {
		return false
	}
	return !numberPattern.MatchString(value) || !strings.Contains(strings.ToLower(name), "token")
}

// secretName reports whether the words of a name speak of a secret. "tokens" and "tokenizer" are
// words of inference engines, "token" alone is a credential.
func secretName(name string) bool {
	words := splitWords(name)
	previous, found := "", false
	for _, w := range words {
		w = strings.TrimRight(w, "0123456789")
		switch w {
		case "secrets", "pass", "passphrase", "credential", "credentials", "auth", "authorization", "cookie", "sig", "signature", "accesskey":
			found = true
		case "pwd": // alone it is the working directory
			found = found || len(words) > 1
		case "key", "keys":
			switch previous {
			case "api", "access", "private", "secret", "auth", "encryption", "signing", "account", "license", "admin", "master":
				found = true
			}
		default:
			for _, end := range [...]string{"token", "secret", "password", "passwd", "apikey"} {
				found = found || strings.HasSuffix(w, end)
			}
		}
		previous = w
	}
	switch previous { // what only points at a secret or describes it
	case "file", "path", "dir", "type", "mode", "url", "id", "header", "name", "env":
		return false
	}
	return found
}

// splitWords cuts snake_case, kebab-case and camelCase names into lower-case words.
func splitWords(name string) []string {
	upper := func(k int) bool { return k < len(name) && name[k] >= 'A' && name[k] <= 'Z' }
	lower := func(k int) bool { return k < len(name) && name[k] >= 'a' && name[k] <= 'z' }
	var words []string
	start := 0
	for k := 0; k <= len(name); k++ {
		sep := k == len(name) || name[k] == '_' || name[k] == '-' || name[k] == '.'
		hump := !sep && upper(k) && k > start && (!upper(k-1) || lower(k+1))
		if !sep && !hump {
			continue
		}
		if k > start {
			words = append(words, strings.ToLower(name[start:k]))
		}
		if start = k; sep {
			start++
		}
	}
	return words
}

// clip bounds a command line; the argument that replaces the rest states how much that was.
func clip(args []string) []string {
	size := 0
	for k, a := range args {
		if size += len(a) + 1; size <= maxCmdline {
			continue
		}
		rest := 0
		for _, a := range args[k:] {
			rest += len(a)
		}
		return append(args[:k:k], fmt.Sprintf("[%d more arguments, %d bytes]", len(args)-k, rest))
	}
	return args
}
