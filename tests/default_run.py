"""What the default run leaves to CI, beside what is marked slow at its test.

Of a test of many cases it keeps those of each kind; the tests in `OTHERS_ASK` take seconds and ask
for one more network or transformation what another test asks. All of it runs with
``-m "slow or not slow"``, as in CI.
"""

from collections.abc import Mapping

#: File and test, and what the names of the cases that stay have in them.
KEPT: Mapping[str, tuple[str, ...]] = {
    "activations/test_gaussian_moments.py::test_a_learned_slope_has_moments_and_gradients": (
        "-0.5",
        "0.25",
    ),
    "activations/test_gaussian_moments.py::test_a_slope_per_channel_has_moments_per_channel": (
        "float32",
    ),
    "activations/test_moving_kinks.py::test_values_and_slopes_are_those_of_the_pieces": (
        "b)-0.3",
        "-40.0",
        "6.0",
        "-0.5",
    ),
    "activations/test_quadrature.py::test_no_place_of_a_kink_is_overlooked": ("0.0714", "1e-11"),
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
    "initializers/test_data_dependent.py::test_reparametrized_kernels": ("LinearlyConstrained",),
    "initializers/test_variance_preserving.py::test_reparametrized_kernels_stay_what_they_are": (
        "scaled_lcw",
        "wn",
    ),
    "losses/test_collect_preactivations.py::test_gradients_flow_through_what_is_collected": (
        "linen",
    ),
    "losses/test_collect_preactivations.py::test_they_are_the_layers_own_with_their_biases": (
        "linen",
    ),
    "losses/test_devices.py::test_a_sharded_batch_under_jit": ("explicit",),
    "losses/test_devices.py::test_it_adds_no_collective_to_the_step": ("explicit",),
    "losses/test_devices.py::test_shard_map_of_a_loss_that_is_averaged_inside": ("2",),
    "losses/test_gamma_decay_strength.py::test_devices_agree": ("auto",),
    "losses/test_gamma_decay_strength.py::test_the_strength_is_that_of_the_explicit_hessian": (
        "dense",
    ),
    "nnx/test_batch_norm_drop_in.py::test_unequal_counts_over_devices": ("-2",),
    "nnx/test_fold_weight_side.py::"
    "test_outputs_are_those_of_the_plain_network_with_the_oracle_s_weights": ("lcw",),
    "noise/test_with_scale_noise.py::test_each_product_is_multiplied_before_its_bias": ("sample",),
    "properties/test_absent_leaves.py::test_absent_leaves_pass_through": ("None",),
    "properties/test_abstract_init.py::test_parameters_and_state_can_be_donated": ("jit",),
    "properties/test_composition.py::test_partition": ("prefix",),
    "properties/test_dtype.py::test_types_are_kept": ("bfloat16",),
    "properties/test_sharding.py::test_replicated_parameters_under_pmap": (
        "centered",
        "noise",
        "tangent",
    ),
    "properties/test_sharding.py::test_sharded_parameters_under_jit": ("explicit",),
    "reparam/test_oracle.py::test_half_precision_storage": ("lcw", "sn"),
    "reparam/test_right_inverse.py::test_a_node_made_of_a_nodes_kernel_has_the_same_kernel": (
        "dense",
    ),
    "reparam/test_singular_units.py::"
    "test_a_zero_unit_is_zero_with_finite_gradients_and_the_others_do_not_notice": ("float32",),
    "test_collectives.py::test_under_jit": ("cwo", "vcl", "ghost_bn"),
    "test_collectives.py::test_under_shard_map": ("cwo", "vcl", "bn"),
    "test_models.py::test_constrained_weights_train_and_do_not_drift": ("gru", "nnx"),
    "test_models.py::test_data_dependent_init_makes_units_of_mean_0_and_variance_1": (
        "convolutional",
        "vit",
    ),
    "test_models.py::test_the_layout_is_the_one_that_is_written_by_hand": ("gru", "nnx"),
    "test_models.py::test_the_variance_constancy_loss_reaches_every_kernel": (
        "gru",
        "efficientnet",
    ),
    "test_models.py::test_variance_preserving_init_makes_unit_variance": ("gru", "nnx"),
    "test_nnx_layout.py::test_a_unit_is_what_one_output_is_made_of": (
        "linear",
        "grouped",
        "transposed",
        "query",
        "stacked",
    ),
    "test_unit_gradient.py::test_a_unit_without_direction_is_zero_with_zero_gradient": (
        "float32",
        "bfloat16",
    ),
    "tracing/test_bias.py::test_any_batch": ("1-", "6-"),
    "transforms/test_noise_injection_state.py::test_clean_parameters_are_found_in_any_wrapper": (
        "partition",
        "all of them",
    ),
    "transforms/test_noise_injection_state.py::test_the_draws_do_not_depend_on_the_sharding": (
        "2",
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
    "initializers/test_data_dependent.py::test_equinox_convolutions",
    "initializers/test_vanishing_gradients.py::"
    "test_with_plain_weights_the_samples_become_indistinguishable",
    "losses/test_affine_strength.py::test_it_is_the_strength_of_the_explicit_hessian",
    "losses/test_gamma_decay_strength.py::"
    "test_the_strength_predicts_what_resampled_statistics_do_to_the_loss",
    "nnx/test_constrained_resnet.py::test_loss_falls",
    "nnx/test_constrained_resnet.py::test_weights_stay_on_the_sphere_and_move",
    "reparam/test_lcw_is_centered_gradient.py::"
    "test_under_adam_neither_centring_nor_another_basis_is_the_same",
    "test_traced_layout.py::test_constrained_steps_on_attention_stay_on_the_set",
    "theory/test_lcw.py::test_gains_are_differentiable_in_the_scale",
)


def is_left_out(test: str, case: str | None) -> bool:
    """Whether the default run leaves out a test, named from the folder of tests, or its case."""
    if test in OTHERS_ASK:
        return True
    return case is not None and test in KEPT and not any(name in case for name in KEPT[test])
