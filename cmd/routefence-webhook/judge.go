package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/lookup"
)

// judge decides about the objects that the webhook is asked about.
type judge struct {
	options inject.Options
	facts   *lookup.Table[facts]
}

// decide puts the fence in. Where the object's own containers name the node networks nothing else is asked, so that the result
// depends on the object alone: an API server that does not answer must not make the next reconcile roll a control plane. Where they
// do not, the Cluster has to name them, and without its word nothing is let in.
func (j judge) decide(ctx context.Context, o admission.Object) (admission.Verdict, error) {
	options := j.options
	options.Namespace = o.Namespace
	result, err := inject.Mutate(o.Tree, options)
	if err != nil {
		return admission.Verdict{}, err
	}
	needed := result.Reason == inject.NoNetworks
	if result.Outcome == inject.LeftAlone && !needed {
		return admission.Verdict{Warnings: result.Warnings}, nil
	}
	f, err := j.facts.Get(ctx, o.Namespace)
	switch {
	case err != nil && needed:
		return admission.Verdict{}, &admission.Unavailable{Err: fmt.Errorf("no container of the pod names the node networks, and the Cluster %s "+
			"could not be read, so the pod cannot be fenced now; try again: %w", o.Namespace, err)}
	case err != nil:
		result.Warnings = append(result.Warnings, fmt.Sprintf("the Cluster %s could not be read, so its Shoot was not checked: %v", o.Namespace, err))
	default:
		if result, err = j.again(o, options, result, f); err != nil {
			return admission.Verdict{}, err
		}
	}
	v := admission.Verdict{Warnings: result.Warnings}
	if result.Outcome == inject.Injected {
		v.Tree = result.Object
	}
	return v, nil
}

// again decides with what is known of the namespace, where that makes a difference.
func (j judge) again(o admission.Object, options inject.Options, first inject.Result, f facts) (result inject.Result, err error) {
	result = first
	if first.Reason == inject.NoNetworks {
		options.Networks = f.networks
	}
	options.Enforce = f.enforce
	if len(options.Networks) > 0 || f.enforce == "baseline" || f.enforce == "restricted" {
		result, err = inject.Mutate(o.Tree, options)
	}
	result.Warnings = slices.Concat(result.Warnings, f.warnings)
	return result, err
}
