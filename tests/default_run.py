"""What the default run leaves to CI, beside what is marked slow at its test.

Of a test of many cases it keeps those of each kind; the tests in `OTHERS_ASK` take seconds and ask
for one more network or transformation what another test asks. All of it runs with
``-m "slow or not slow"``, as in CI.
"""

from collections.abc import Mapping

#: File and test, and what the names of the cases that stay have in them.
KEPT: Mapping[str, tuple[str, ...]] = {
    "experiments/test_branch_scales.py::test_branches_are_counted": ("wrn28x10",),
    "experiments/test_checkpoints.py::"
    "test_a_damaged_checkpoint_is_named_and_another_used_only_if_asked": ("truncated",),
    "experiments/test_checkpoints.py::test_saved_on_eight_devices_and_restored_on_fewer": ("2",),
    "experiments/test_dry_runs.py::test_sizes_and_schedules_are_the_papers": ("fig6", "tab5"),
    "experiments/test_large_models.py::test_logits_of_small_images": ("cnn4", "resnet18", "nin"),
    "experiments/test_measured.py::test_small_presets_confirm_the_paper": ("bound",),
    "experiments/test_methods.py::test_training_moves_every_leaf": ("cwo", "lcw", "vcl"),
    "experiments/test_models.py::test_cnn9": ("2-",),
    "experiments/test_overlap.py::test_results_are_recorded_once_the_next_epoch_has_begun": (
        "scanned",
    ),
    "experiments/test_reports.py::test_a_picture_is_drawn": ("0", "4"),
    "experiments/test_tensorboard.py::test_the_curves_are_in_the_event_files": ("command0",),
    "experiments/test_training.py::test_an_epoch_is_a_loop_of_steps": ("bn",),
    "initializers/test_fitted.py::test_half_precision": ("bfloat16",),
    "initializers/test_fitted.py::test_networks_of_other_libraries": ("nnx", "linen"),
    "initializers/test_fitted.py::test_reparametrized_kernels_stay_what_they_are": ("scaled", "wn"),
    "losses/test_collect_preactivations.py::test_they_are_the_layers_own_with_their_biases": (
        "linen",
    ),
    "losses/test_gamma_decay_strength.py::test_the_strength_is_that_of_the_explicit_hessian": (
        "dense",
    ),
    "models/test_models.py::test_constrained_weights_train_and_do_not_drift": ("gru", "nnx"),
    "models/test_models.py::test_the_first_layer_is_what_no_other_parameter_changes": (
        "convolutional",
        "vit",
    ),
    "models/test_models.py::test_the_layout_is_the_one_that_is_written_by_hand": ("gru", "nnx"),
    "models/test_models.py::test_the_variance_constancy_loss_reaches_every_kernel": ("gru", "nnx"),
    "nnx/test_batch_norm.py::test_a_sharded_batch_under_jit": ("explicit",),
    "nnx/test_layout.py::test_a_unit_is_what_one_output_is_made_of": (
        "linear",
        "grouped",
        "transposed",
        "query",
        "stacked",
    ),
    "noise/test_with_scale_noise.py::test_each_product_is_multiplied_before_its_bias": ("sample",),
    "properties/test_dtype.py::test_types_are_kept": ("bfloat16",),
    "properties/test_sharding.py::test_replicated_parameters_under_pmap": (
        "centered",
        "noise",
        "tangent",
    ),
    "properties/test_sharding.py::test_sharded_parameters_under_jit": ("explicit",),
    "reparam/test_oracle.py::test_half_precision_storage": ("lcw", "sn"),
    "reparam/test_singular_units.py::"
    "test_a_zero_unit_is_zero_with_finite_gradients_and_the_others_do_not_notice": ("float32",),
    "test_collectives.py::test_under_jit": ("cwo", "vcl", "ghost_bn"),
    "test_collectives.py::test_under_shard_map": ("cwo", "vcl", "bn"),
    "test_unit_gradient.py::test_a_unit_without_direction_is_zero_with_zero_gradient": (
        "float32",
        "bfloat16",
    ),
    "transforms/test_noise_injection_state.py::test_clean_parameters_are_found_in_any_wrapper": (
        "partition",
        "all of them",
    ),
    "transforms/test_sphere_projection_limits.py::test_drift_after_two_thousand_steps": ("adam",),
}

OTHERS_ASK = (
    "experiments/test_cli.py::test_quiet_prints_nothing_and_writes_everything",
    "experiments/test_methods.py::test_the_head_can_be_included",
    "experiments/test_rectified_chain.py::test_weights_by_hand_give_the_same_moments",
    "experiments/test_step_options.py::test_microbatches_make_the_same_step",
    "experiments/test_transformer.py::"
    "test_attention_s_kernels_have_the_axes_that_it_contracts_and_keep_to_the_set",
    "experiments/test_transformer.py::test_no_position_sees_those_after_it",
    "losses/test_affine_strength.py::test_it_is_the_strength_of_the_explicit_hessian",
    "theory/test_lcw.py::test_gains_are_differentiable_in_the_scale",
)


def is_left_out(test: str, case: str | None) -> bool:
    """Whether the default run leaves out a test, named from the folder of tests, or its case."""
    if test in OTHERS_ASK:
        return True
    return case is not None and test in KEPT and not any(name in case for name in KEPT[test])
