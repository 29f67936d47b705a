package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/shoot"
)

// role is what an object is to the fence.
type role int

const (
	// decisive is the object that the user named: as long as it has named nothing, nothing is known.
	decisive role = iota
	// additional is an Infrastructure beside its Cluster. It may add networks, but nothing waits for it: in most places it may not
	// be read, and it names nothing before the infrastructure is there.
	additional
)

// belief is what holds of one object, and what is wrong. It is a value: each answer of the API server makes a new one.
type belief struct {
	ref  Ref
	role role
	// held is the last good statement. Only another good statement makes it smaller.
	held    shoot.Statement
	version uint64
	known   bool
	// content is what is wrong with the object as it stands.
	content error
	// missing says that the object is not there; away why the API server cannot be heard.
	missing, away error
	warnings      []string
}

// remember takes what an earlier process left in the cache.
func (b belief) remember(s shoot.Statement) belief {
	if len(s.Reading.Networks) == 0 && b.role == decisive {
		return b
	}
	b.held, b.known = s, true
	b.version, _ = strconv.ParseUint(s.Version, 10, 64)
	b.away = fmt.Errorf("%s is as the cache has it; the API server has not answered since the start", b.ref)
	return b
}

// hear takes the object as the API server has it.
func (b belief) hear(o object) belief {
	b.missing = nil
	same := o.uid == b.held.UID
	if same && o.version < b.version {
		return b.older(o)
	}
	b.content, b.warnings = nil, o.reading.Warnings
	if o.err != nil {
		return b.nothing(o)
	}
	if !same && b.known && len(o.reading.Problems) > 0 {
		// Another object replaces the old one, but not with a statement of which a part was not understood.
		b.content = errors.Join(o.reading.Problems...)
		b.held.Reading = shoot.Merge(b.held.Reading, o.reading)
		return b
	}
	last := b.held.Reading
	if !same {
		last = shoot.Reading{}
	}
	b.held = shoot.Statement{UID: o.uid, Version: strconv.FormatUint(o.version, 10)}
	b.held.Reading, b.content = shoot.Accept(last, o.reading)
	b.known, b.version = true, o.version
	return b
}

// older takes a revision that came after a newer one: from an API server that lags behind, or was restored from a backup.
func (b belief) older(o object) belief {
	b.warnings = []string{fmt.Sprintf("revision %d of %s came after revision %d; only what it adds counts", o.version, b.ref, b.version)}
	if o.err == nil {
		b.held.Reading = shoot.Merge(b.held.Reading, o.reading)
	}
	return b
}

// nothing takes an object that names no network.
func (b belief) nothing(o object) belief {
	b.content = o.err
	if o.uid == b.held.UID {
		b.version = o.version
	}
	var invalid *policy.InvalidNetworkError
	if b.role == additional && !errors.As(o.err, &invalid) {
		b.known, b.content = true, nil
		b.warnings = []string{o.err.Error()}
	}
	return b
}

// miss takes the answer that there is no such object.
func (b belief) miss() belief {
	b.content, b.warnings = nil, nil
	err := explain(b.ref, &named{NotFound, errors.New("there is no such object")})
	return b.without(err)
}

// without takes the absence of what an additional object could say, which is in order unless it has said something before.
func (b belief) without(err error) belief {
	if b.role == additional && len(b.held.Reading.Networks) == 0 {
		b.known, b.warnings, b.missing, b.away = true, []string{err.Error()}, nil, nil
		return b
	}
	b.missing = err
	return b
}

// lose takes a failure to hear the API server.
func (b belief) lose(err error) belief {
	if b.refused(err) {
		return b.without(explain(b.ref, err))
	}
	b.away = explain(b.ref, err)
	return b
}

// refused reports whether a failure means that an additional object is not for us to read, which is how it is in most places.
func (b belief) refused(err error) bool {
	cause := causeOf(err)
	return b.role == additional && (cause == Forbidden || cause == NotServed) && len(b.held.Reading.Networks) == 0
}

// longest is the longest pause after a failure.
func (b belief) longest(err error) time.Duration {
	if b.refused(err) {
		return refusedPause
	}
	return maxPause
}

// reach takes that the API server can be heard again.
func (b belief) reach() belief {
	b.away = nil
	return b
}

// fill puts the belief into a report. What cannot be asked takes nothing away and does not make the fence doubtful, so it is Away
// and not Err, unless nothing is known at all.
func (b belief) fill(r shoot.Report) shoot.Report {
	absent := b.away
	if absent == nil {
		absent = b.missing
	}
	r.Known, r.Warnings, r.Err, r.Away = b.known, b.warnings, b.content, nil
	switch {
	case absent == nil:
	case b.known:
		r.Away = fmt.Errorf("%w; what it named before stays fenced", absent)
	default:
		r.Err = errors.Join(b.content, absent)
	}
	if b.content != nil && b.known {
		r.Err = fmt.Errorf("%s: %w; what it named before stays fenced, correct the object", b.ref, b.content)
	}
	return r
}
