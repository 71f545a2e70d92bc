"""The lab: experiments whose claims hold or do not. It is not part of the installed package.

`contenders` has the protocol of measured programs, `report` the parts and pages of long experiments,
`generators` the papers' data. Experiments: `papers`, `peers`, `scale`, `spark_joins`, `state_model`; `bench`
is the regression guard. `python -m lab list` names what can be run.
"""
