package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/shoot"
)

// fixedSource is a source that never changes: a flag, or the environment.
type fixedSource struct{ report shoot.Report }

func newFixedSource(name, ref string, networks []netip.Prefix, warnings []string, problems []error) fixedSource {
	return fixedSource{shoot.Report{
		Name: name, Ref: ref, Known: true, Networks: policy.New(networks, nil, nil, nil).Networks,
		Warnings: warnings, Err: errors.Join(problems...), LastChange: time.Now(),
	}}
}

// Report implements agent.Source.
func (s fixedSource) Report() shoot.Report { return s.report }

// Run implements agent.Source.
func (s fixedSource) Run(ctx context.Context, _ func()) { <-ctx.Done() }
